"""agentcache: a prefix-caching runtime for agents.

Importing this package never imports torch; the model side is loaded by ``agentcache serve``, or by a ``LocalClient``.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

try:
    __version__ = version("agentcache")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["AsyncLocalClient", "LocalClient", "__version__"]

if TYPE_CHECKING:
    from agentcache.local.clients import AsyncLocalClient, LocalClient
else:

    def __getattr__(name: str) -> object:
        """The clients are imported when they are asked for: the linter and the command line do without them."""
        if name in {"AsyncLocalClient", "LocalClient"}:
            from agentcache.local import clients

            return getattr(clients, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
