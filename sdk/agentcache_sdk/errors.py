"""One tree for everything that can go wrong between this client and the server.

::

    AgentCacheError
    |-- APIError              the server answered with an error
    |   |-- BadRequest        400 and its relatives: the request can never be served as it stands
    |   |-- NotFound          404: no such model, session or route
    |   |-- SessionDiverged   422: the session's transcript is not the one that the call assumes
    |   |-- ContextOverflow   400 context_length_exceeded: the prompt cannot fit
    |   |-- Busy              429 session_busy: the session's previous turn is still running
    |   |-- RateLimited       429: the server's queue is full
    |   `-- ServerError       5xx, or an error in the middle of a stream
    |-- ConnectionFailed      no connection, or it was lost
    `-- Timeout               the server stayed silent for longer than the client's ``timeout``
"""

# The names are part of the public surface and read as what happened, so they carry no "Error" suffix.
# ruff: noqa: N818

from __future__ import annotations


class AgentCacheError(Exception):
    """Root of the tree: catch it to catch everything that the SDK raises about a server.

    >>> from agentcache_sdk import AgentCacheError, Client
    >>> try:
    ...     Client("http://127.0.0.1:9", max_retries=0).models()
    ... except AgentCacheError as error:
    ...     print(type(error).__name__)
    ConnectionFailed
    """


class APIError(AgentCacheError):
    """An error that the server reported.  Raised itself only for what has no class of its own, such as 401.

    Attributes:
        message: the server's sentence.
        status: HTTP status.
        code: stable machine-readable code, such as ``context_length_exceeded``.
        param: the field of the request that is the matter.
        request_id: what the server calls this request in its log.
        retry_after: seconds after which the server says a retry may help.
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        code: str | None = None,
        param: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retry_after: float | None = None

    def __str__(self) -> str:
        facts = [f"HTTP {self.status}"]
        facts += [f"code {self.code}"] if self.code else []
        facts += [f"field {self.param}"] if self.param else []
        facts += [f"request {self.request_id}"] if self.request_id else []
        return f"{self.message} ({', '.join(facts)})"


class BadRequest(APIError):
    """The request can never be served as it stands; ``param`` names the field."""


class NotFound(APIError):
    """No such model, session or route."""


class SessionDiverged(APIError):
    """The session's transcript is not the one that the call assumes; nothing was changed.

    Another client has added or dropped turns: ``client.resume(session.id)`` goes on from what is there now.  Or a snapshot
    was made with another model or chat template.
    """


class ContextOverflow(APIError):
    """The prompt does not fit the model's context or the server's pages; the message names both numbers."""


class Busy(APIError):
    """The session's previous turn is still running: a session has one turn in flight."""


class RateLimited(APIError):
    """The server's queue is full; ``retry_after`` says when to come back."""


class ServerError(APIError):
    """The server failed, is shutting down, or ended a stream with an error."""


class ConnectionFailed(AgentCacheError):
    """No connection could be made, or it was lost before the reply was complete.

    Attributes:
        sent: whether any part of the request may have reached the server.
    """

    def __init__(self, message: str, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class Timeout(AgentCacheError):
    """The server sent nothing for longer than the client's ``timeout``."""
