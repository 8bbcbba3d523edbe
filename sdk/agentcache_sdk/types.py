"""What the server says, typed.  Every model keeps fields that it does not know, so a newer server loses nothing."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """Base of all results: immutable, and unknown fields stay readable as attributes and in ``model_extra``."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class PromptTokensDetails(Wire):
    """``cached_tokens``: part of the prompt that was reused."""

    cached_tokens: int | None = None


class Usage(Wire):
    """Token counts of one request.  ``total_tokens = prompt_tokens + completion_tokens``."""

    prompt_tokens: int = 0
    """The whole prompt, cached part included."""
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose keys and values were reused."""
        return (self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens) or 0


class Miss(Wire):
    """Why a prompt was not cached further than it was.

    ``code``: cold, below_page, diverged, evicted, expired, salt, model, in_flight, template or disabled.
    """

    code: str
    at_token: int = 0
    message_index: int | None = None
    path: str | None = None
    was: str | None = None
    now: str | None = None
    detail: str | None = None


class Location(Wire):
    """Where a finding is: ``path`` is a JSON path such as ``messages[0].content``, ``char`` an offset in its text."""

    file: str | None = None
    record: int | None = None
    path: str | None = None
    char: int | None = None
    token: int | None = None
    page: int | None = None


class Fix(Wire):
    """``applicability``: safe, unsafe or display."""

    applicability: str | None = None
    edits: list[Any] = Field(default_factory=list)


class Finding(Wire):
    """One thing that keeps a prompt from being reused; the same shape as the linter's.

    ``confidence``: confirmed or suspected.  ``verdict``: waste, legitimate or unavoidable.
    ``tokens_lost_kind``: exact, upper_bound or estimate.
    """

    code: str
    name: str | None = None
    severity: str | None = None
    confidence: str | None = None
    verdict: str | None = None
    location: Location = Field(default_factory=Location)
    session: str | None = None
    compared_to: Any = None
    before: str | None = None
    after: str | None = None
    tokens_lost: int | None = None
    tokens_lost_kind: str | None = None
    shared_by: int | None = None
    fix: Fix | None = None


class Tiers(Wire):
    """Cached tokens by where their pages were found."""

    device: int = 0
    host: int = 0
    disk: int = 0
    store: int = 0


class SharePoint(Wire):
    """A place where prompts stop being equal; ``tail`` tokens of it lie in a page that is only partly shared."""

    path: str | None = None
    token: int = 0
    tail: int = 0


class Alignment(Wire):
    """How the unchanging beginning of a prompt fits the pages: ``tail_tokens`` of it lie in a partly filled page."""

    static_tokens: int | None = None
    tail_tokens: int | None = None
    share_points: list[SharePoint] = Field(default_factory=list)


class CacheReport(Wire):
    """The ``agentcache`` object of a response: what was reused, what was computed and why not less.

    A server that does not send one leaves everything but the two token counts of ``usage`` empty.
    """

    session: str | None = None
    page_size: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_pages: int | None = None
    partial_tokens: int | None = None
    computed_tokens: int | None = None
    """Positions really run for this request, recomputation after preemption included."""
    preemptions: int | None = None
    tiers: Tiers | None = None
    miss: Miss | None = None
    alignment: Alignment | None = None
    findings: list[Finding] = Field(default_factory=list)
    source: str | None = None
    """``template``: the ids came from rendering; ``transcript``: from a transcript that the server knows."""


class ToolCall(Wire):
    """A call that the model asks for.  ``arguments`` is the JSON text exactly as it was generated."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    @property
    def args(self) -> dict[str, Any]:
        """``arguments`` as a dictionary.

        Raises:
            ValueError: they are not a JSON object (a call that was cut by length, for instance).
        """
        try:
            value = json.loads(self.arguments or "{}")
        except json.JSONDecodeError as error:
            raise ValueError(f"tool call {self.name}: arguments are not JSON: {error}: {self.arguments!r}") from None
        if not isinstance(value, dict):
            raise ValueError(f"tool call {self.name}: arguments must be a JSON object, got {self.arguments!r}")  # noqa: TRY004
        return value


class Choice(Wire):
    """One reply.  ``token_ids`` are there when the request asked with ``return_token_ids=True``."""

    text: str = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    message: dict[str, Any] = Field(default_factory=dict, repr=False)
    """The assistant message as the server sent it; what has to be replayed in the next turn."""


class Turn(Choice):
    """The first reply of a request, with what the request cost.

    >>> from agentcache_sdk import Client
    >>> with Client("http://127.0.0.1:8100") as client:
    ...     turn = client.chat([{"role": "user", "content": "Say hello."}], max_tokens=8)
    >>> turn.usage.prompt_tokens >= turn.usage.cached_tokens
    True
    """

    usage: Usage = Field(default_factory=Usage)
    cache: CacheReport = Field(default_factory=CacheReport)
    choices: list[Choice] = Field(default_factory=list, repr=False)
    """All replies: several with ``n`` > 1 or with a list of prompts; the first one is this turn itself."""
    raw: dict[str, Any] = Field(default_factory=dict, repr=False)
    """The response body; of a stream, the body that its chunks add up to."""


class Model(Wire):
    """A served model; ``max_model_len`` and ``page_size`` in tokens."""

    id: str
    created: int | None = None
    owned_by: str | None = None
    max_model_len: int | None = None
    page_size: int | None = None


class Health(Wire):
    """Whether requests are served."""

    status: str = "ok"


class Version(Wire):
    """What the server runs."""

    version: str


class Tokens(Wire):
    """A prompt as token ids."""

    tokens: list[int]
    count: int
    max_model_len: int | None = None


class CacheState(Wire):
    """Pages by state: ``free + live + cached + pinned = total``.  ``page_size`` in tokens."""

    page_size: int | None = None
    total: int = 0
    free: int = 0
    live: int = 0
    """Held by requests that run."""
    cached: int = 0
    pinned: int = 0
    running: int | None = None
    """Requests."""
    waiting: int | None = None


class Pin(Wire):
    """A lease on a session's pages: ``granted_pages`` of them stay until ``expires_at`` (Unix seconds)."""

    granted_pages: int
    expires_at: float | None = None


class Snapshot(Wire):
    """A session as the server keeps it across restarts: under which name, and how long its transcript is."""

    name: str
    tokens: int | None = None
    turns: int | None = None


class SessionTurn(Wire):
    """What one turn cost, as the server counted it.  ``messages``: how many it added, the reply included."""

    messages: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int | None = None
    completion_tokens: int = 0
    miss: Miss | None = None
    tools: list[str] | None = None
    """Names of the tools that it added."""


class SessionInfo(Wire):
    """A session as the server holds it.  ``tokens`` and ``pages`` of its transcript; times in Unix seconds."""

    id: str
    model: str | None = None
    kind: str | None = None
    """``chat``, or ``raw`` for one without messages."""
    tokens: int = 0
    pages: int = 0
    turns: list[SessionTurn] = Field(default_factory=list)
    expires_at: float | None = None
    pinned_until: float | None = None
    ttl_s: float | None = None
    metadata: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = Field(None, repr=False)
    """All that was said, where the server was asked for it."""
    tools: list[dict[str, Any]] | None = Field(None, repr=False)
    """All tools, those that turns added included, where the server was asked for what was said."""
    text: str | None = Field(None, repr=False)
    """The same, of a raw session."""


class CachedNow(Wire):
    """How much of a transcript a turn would find cached, where it lies, and why not more."""

    tokens: int = 0
    pages: int = 0
    tiers: Tiers | None = None
    miss: Miss | None = None


class Explanation(SessionInfo):
    """``events``: what happened to the session, oldest first.  ``cached``: how much of its transcript is cached now."""

    events: list[dict[str, Any]] = Field(default_factory=list)
    cached: CachedNow | None = None
