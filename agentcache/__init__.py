"""agentcache: a prefix-caching runtime for agents.

Importing this package never imports torch; the model side is loaded by ``agentcache serve``.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("agentcache")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
