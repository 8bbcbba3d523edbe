"""Errors that callers of the runtime may see.  Each message says what was got and what was expected."""


class AgentCacheError(Exception):
    """Root of the runtime's own errors."""


class SettingsError(AgentCacheError):
    """A setting, or a pair of settings, that cannot be served."""


class UnsupportedModelError(AgentCacheError):
    """A model that cannot be loaded, or whose attention cannot be cached correctly."""


class RequestError(AgentCacheError):
    """A request that can never be served as it stands (HTTP 400).

    Args:
        message: what was got and what was expected.
        param: the field of the request that is the matter, if one is.
        code: a stable machine-readable code, such as ``context_length_exceeded``.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ChatTemplateError(RequestError):
    """Messages that the model's chat template refuses."""


class QueueFullError(AgentCacheError):
    """More requests wait than ``max_waiting`` allows (HTTP 429).

    Args:
        message: how many wait, and how many may.
        retry_after_s: seconds after which there should be places again, as fast as requests are served now.
    """

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineFailingError(AgentCacheError):
    """Steps fail one after another, so nothing is taken in until one succeeds (HTTP 503).

    Args:
        message: what is known of it.
        retry_after_s: seconds until it is tried again.
    """

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineStoppedError(AgentCacheError):
    """The engine has stopped and takes no requests any more (HTTP 503)."""


class InvariantError(AgentCacheError):
    """Something that must always hold does not; see ``check()``."""
