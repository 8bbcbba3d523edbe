"""Calls over httpx, with retries; everything that is decided here is decided in ``_retry`` and ``_replies``."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

import httpx

from agentcache_sdk._calls import Call, Steps, headers, root_url
from agentcache_sdk._replies import Reply, error_of, transport_error
from agentcache_sdk._retry import RetryPolicy
from agentcache_sdk.errors import AgentCacheError

T = TypeVar("T")
CLOSED = "the client is closed"
# How many requests run at once is the server's decision: it queues, and says 429 when the queue is full.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64)


class Transport:
    """Sends calls and waits for their answers.

    Args:
        retries: when to try again.
        transport: a transport of httpx's to use in place of the network (tests).
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float | None,
        retries: RetryPolicy,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.base_url = root_url(base_url)
        self._retries = retries
        self._http = httpx.Client(
            base_url=self.base_url, headers=headers(api_key), timeout=timeout, transport=transport, limits=_LIMITS
        )

    def run(self, call: Call[T]) -> T:
        """The parsed answer.

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``.
        """
        response = self.open(call)
        try:
            content = response.read()
        except httpx.RequestError as error:
            raise transport_error(error, self.base_url) from error
        finally:
            response.close()
        return call.parse(Reply(response.status_code, response.headers, content))

    def drive(self, steps: Steps[T]) -> T:
        """Make every call that ``steps`` asks for; what they come to."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self.run(call)
                except BaseException as error:  # noqa: BLE001  the steps decide, and raise it unless they can go on
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def open(self, call: Call[T]) -> httpx.Response:
        """A successful response whose body is still to be read; the caller closes it."""
        attempt = 0
        while True:
            try:
                return self._attempt(call)
            except AgentCacheError as failure:
                attempt += 1
                wait = self._retries.wait_before(attempt, failure, call.repeat)
                if wait is None:
                    raise
            time.sleep(wait)

    def _attempt(self, call: Call[T]) -> httpx.Response:
        if self._http.is_closed:
            raise AgentCacheError(CLOSED)
        try:
            response = self._http.send(call.build(self._http), stream=True)
            if response.is_success:
                return response
            try:
                content = response.read()
            finally:
                response.close()
        except httpx.RequestError as error:
            raise transport_error(error, self.base_url) from error
        raise error_of(Reply(response.status_code, response.headers, content))

    def close(self) -> None:
        self._http.close()


class AsyncTransport:
    """The asynchronous twin of ``Transport``."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float | None,
        retries: RetryPolicy,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = root_url(base_url)
        self._retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.base_url, headers=headers(api_key), timeout=timeout, transport=transport, limits=_LIMITS
        )

    async def run(self, call: Call[T]) -> T:
        """The parsed answer.

        Raises:
            AgentCacheError: see ``agentcache_sdk.errors``.
        """
        response = await self.open(call)
        try:
            content = await response.aread()
        except httpx.RequestError as error:
            raise transport_error(error, self.base_url) from error
        finally:
            await response.aclose()
        return call.parse(Reply(response.status_code, response.headers, content))

    async def drive(self, steps: Steps[T]) -> T:
        """Make every call that ``steps`` asks for; what they come to."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self.run(call)
                except BaseException as error:  # noqa: BLE001  the steps decide, and raise it unless they can go on
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    async def open(self, call: Call[T]) -> httpx.Response:
        """A successful response whose body is still to be read; the caller closes it."""
        attempt = 0
        while True:
            try:
                return await self._attempt(call)
            except AgentCacheError as failure:
                attempt += 1
                wait = self._retries.wait_before(attempt, failure, call.repeat)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def _attempt(self, call: Call[T]) -> httpx.Response:
        if self._http.is_closed:
            raise AgentCacheError(CLOSED)
        try:
            response = await self._http.send(call.build(self._http), stream=True)
            if response.is_success:
                return response
            try:
                content = await response.aread()
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise transport_error(error, self.base_url) from error
        raise error_of(Reply(response.status_code, response.headers, content))

    async def close(self) -> None:
        await self._http.aclose()
