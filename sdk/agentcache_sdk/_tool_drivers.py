"""Runs the loop of an agent, with and without asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentcache_sdk._core import SessionCore
from agentcache_sdk._flights import SessionFlight, whole
from agentcache_sdk._tool_loop import (
    AskModel,
    Callbacks,
    Job,
    RunInput,
    RunResult,
    RunTools,
    ToolRun,
    failed,
    finished,
    job_of,
    loop,
)
from agentcache_sdk._transport import AsyncTransport, Transport
from agentcache_sdk.cache_warnings import CallSite
from agentcache_sdk.streams import AsyncChatStream, ChatStream
from agentcache_sdk.types import ToolCall, Turn


@dataclass(frozen=True)
class ToolDriver:
    """One session's run: its turns one after the other, and the tools of a turn one after the other."""

    transport: Transport
    core: SessionCore
    callbacks: Callbacks
    site: CallSite

    def run(self, given: RunInput) -> RunResult:
        steps = loop(self.core, given)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._turn(step) if isinstance(step, AskModel) else self._tools(step))
        except StopIteration as done:
            result: RunResult = done.value
            return result

    def _turn(self, step: AskModel) -> Turn:
        given = step.sampled(_tell(self.callbacks.before_turn, step.number))
        flight = SessionFlight(self.core, given, self.site)
        if self.callbacks.on_delta is None:
            turn = self.transport.drive(whole(flight))
        else:
            with ChatStream(self.transport, flight) as stream:
                for delta in stream:
                    self.callbacks.on_delta(delta)
                turn = stream.result()
        _tell(self.callbacks.on_turn, turn)
        return turn

    def _tools(self, step: RunTools) -> tuple[ToolRun, ...]:
        if step.lease is not None:
            self.transport.drive(self.core.wait(*step.lease))
        return tuple(self._tool(call) for call in step.calls)

    def _tool(self, call: ToolCall) -> ToolRun:
        told = _tell(self.callbacks.on_call, call)
        run = self._call(job_of(self.core, call)) if told is None else finished(call, told)
        _tell(self.callbacks.on_result, run)
        return run

    def _call(self, job: Job) -> ToolRun:
        if job.function is None:
            assert job.outcome is not None
            return job.outcome
        with self.core.timed(job.call.name):
            try:
                value = job.function(**job.arguments)
            except Exception as error:  # noqa: BLE001  the model is told, or the caller, as was asked
                return failed(job.call, error)
        if inspect.iscoroutine(value):
            value.close()
            return failed(job.call, TypeError(f"{job.call.name} is async: run it in a session of AsyncClient"))
        return finished(job.call, value)


def _tell(callback: Callable[[Any], Any] | None, about: Any) -> Any:
    return None if callback is None else callback(about)


@dataclass(frozen=True)
class AsyncToolDriver:
    """The asynchronous twin of ``ToolDriver``; the tools of a turn run at the same time, plain functions in threads."""

    transport: AsyncTransport
    core: SessionCore
    callbacks: Callbacks
    site: CallSite

    async def run(self, given: RunInput) -> RunResult:
        steps = loop(self.core, given)
        try:
            step = next(steps)
            while True:
                answer = await (self._turn(step) if isinstance(step, AskModel) else self._tools(step))
                step = steps.send(answer)
        except StopIteration as done:
            result: RunResult = done.value
            return result

    async def _turn(self, step: AskModel) -> Turn:
        given = step.sampled(await _tell_async(self.callbacks.before_turn, step.number))
        flight = SessionFlight(self.core, given, self.site)
        if self.callbacks.on_delta is None:
            turn = await self.transport.drive(whole(flight))
        else:
            async with AsyncChatStream(self.transport, flight) as stream:
                async for delta in stream:
                    await _tell_async(self.callbacks.on_delta, delta)
                turn = await stream.result()
        await _tell_async(self.callbacks.on_turn, turn)
        return turn

    async def _tools(self, step: RunTools) -> tuple[ToolRun, ...]:
        if step.lease is not None:
            await self.transport.drive(self.core.wait(*step.lease))
        tasks = [asyncio.ensure_future(self._tool(call)) for call in step.calls]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # of no effect on those that are done; the others' run was ended from outside
            await asyncio.gather(*tasks, return_exceptions=True)  # nothing of a run is at work when it is over

    async def _tool(self, call: ToolCall) -> ToolRun:
        told = await _tell_async(self.callbacks.on_call, call)
        run = await self._call(job_of(self.core, call)) if told is None else finished(call, told)
        await _tell_async(self.callbacks.on_result, run)
        return run

    async def _call(self, job: Job) -> ToolRun:
        if job.function is None:
            assert job.outcome is not None
            return job.outcome
        with self.core.timed(job.call.name):
            try:
                value = await _called(job)
            except Exception as error:  # noqa: BLE001  the model is told, or the caller, as was asked
                return failed(job.call, error)
        return finished(job.call, value)


async def _called(job: Job) -> Any:
    function = job.function
    assert function is not None
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(**job.arguments)
    value = await asyncio.to_thread(function, **job.arguments)
    return await value if inspect.isawaitable(value) else value


async def _tell_async(callback: Callable[[Any], Any] | None, about: Any) -> Any:
    told = _tell(callback, about)
    return await told if inspect.isawaitable(told) else told
