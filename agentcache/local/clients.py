"""``Client`` and ``AsyncClient`` of the SDK without a server beside them: the engine runs in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from agentcache.errors import SettingsError
from agentcache.local.runtime import LocalRuntime
from agentcache.local.transports import AsyncLocalTransport, LocalTransport
from agentcache.settings import Settings, checked_settings
from agentcache.startup import Progress
from agentcache_sdk import AsyncClient, Client

if TYPE_CHECKING:
    from agentcache.engine.loop import EngineInfo

_ADDRESS = "http://in-process.localhost"
"""Never connected to; a name that means this machine, since no other one is answered."""
_OF_THE_NETWORK = frozenset(
    {
        "host",
        "port",
        "api_keys",
        "admin_keys",
        "allow_keyless",
        "cors_origins",
        "max_connections",
        "head_timeout_s",
        "body_timeout_s",
    }
)


class LocalClient(Client):
    """The SDK's ``Client`` in one process with the engine: the same methods, results and errors, and no port.

    The constructor loads the model.  ``close()``, the end of ``with``, the end of the program, or that nobody holds the client
    or a session of it any more: each ends the engine and its threads.  Safe to share between threads.

    Args:
        model: as ``agentcache serve --model``.
        timeout: seconds of silence after which a request fails; nothing gets lost on the way here, so by default never.
        max_retries: further attempts while the queue is full or the engine is recovering.
        progress: a function that is told what loading does; ``True`` shows it on standard error, ``False`` does not;
            ``None``: if that is a terminal.
        settings: the other settings of ``agentcache serve``, but for those of the network: ``page_size=32``,
            ``kv_memory="1GiB"``, ``weights="int8"`` ...  ``agentcache.toml`` is not read.

    Raises:
        agentcache.errors.SettingsError: a setting, or a pair of settings, cannot be served.
        agentcache.errors.UnsupportedModelError: the model cannot be loaded or cached correctly.
        agentcache.errors.AgentCacheError: a package of the extra ``serve`` is missing.

    >>> from agentcache import LocalClient
    >>> with LocalClient("smollm2", num_pages=64) as client:
    ...     turn = client.chat([{"role": "user", "content": "Say hello."}], max_tokens=8)
    >>> turn.usage.completion_tokens > 0
    True
    """

    def __init__(
        self,
        model: str = "smollm2",
        *,
        timeout: float | None = None,
        max_retries: int = 2,
        progress: Progress | bool | None = None,
        **settings: Any,
    ) -> None:
        self._runtime = LocalRuntime(_settings(model, settings), progress)
        super().__init__(_ADDRESS, None, timeout, max_retries, transport=LocalTransport(self._runtime, owner=True))
        self._runtime.start()

    @property
    def engine_info(self) -> EngineInfo:
        """Model, device, context and pages."""
        return self._runtime.info

    def http_transport(self) -> httpx.BaseTransport:
        """For other clients on httpx: ``httpx.Client(transport=..., base_url=client.base_url)`` has all of the server's routes.

        Closing such a client does not end the engine.
        """
        return LocalTransport(self._runtime, owner=False)

    def _official_http(self, timeout: float | None) -> Any:
        return httpx.Client(transport=self.http_transport(), timeout=timeout)

    def __enter__(self) -> LocalClient:
        return self


class AsyncLocalClient(AsyncClient):
    """The SDK's ``AsyncClient`` in one process with the engine; arguments and errors as ``LocalClient``.

    The model is loaded by ``async with``, or by the first call, so that an event loop goes on meanwhile; settings are checked at
    once.  It can be used from several event loops.
    """

    def __init__(
        self,
        model: str = "smollm2",
        *,
        timeout: float | None = None,
        max_retries: int = 2,
        progress: Progress | bool | None = None,
        **settings: Any,
    ) -> None:
        self._runtime = LocalRuntime(_settings(model, settings), progress)
        super().__init__(_ADDRESS, None, timeout, max_retries, transport=AsyncLocalTransport(self._runtime, owner=True))

    @property
    def engine_info(self) -> EngineInfo:
        """See ``LocalClient.engine_info``.

        Raises:
            AgentCacheError: the model is not loaded yet.
        """
        return self._runtime.info

    def http_transport(self) -> httpx.AsyncBaseTransport:
        """See ``LocalClient.http_transport``; for ``httpx.AsyncClient``."""
        return AsyncLocalTransport(self._runtime, owner=False)

    def _official_http(self, timeout: float | None) -> Any:
        return httpx.AsyncClient(transport=self.http_transport(), timeout=timeout)

    async def __aenter__(self) -> AsyncLocalClient:
        await self._runtime.start_beside()
        return self


def _settings(model: str, given: dict[str, Any]) -> Settings:
    """
    Raises:
        SettingsError: in the words of the command line.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if foreign := sorted(_OF_THE_NETWORK & given.keys()):
        raise SettingsError(
            f"{', '.join(foreign)}: a client in one process with the engine has no network, leave it out"
        )
    return checked_settings({"access_log": "off", **given, "model": str(model)})
