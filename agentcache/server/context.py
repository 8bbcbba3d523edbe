"""What every route needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from agentcache.dialects.wording import shown
from agentcache.server.errors import ApiError, shutting_down
from agentcache.server.findings.said import SaidReplies
from agentcache.server.gate.bounds_text import TextBounds
from agentcache.server.lifecycle import Lifecycle
from agentcache.server.replies.plan import ReplyPlanner
from agentcache.server.sessions.desk import SessionDesk
from agentcache.server.watch.exchanges import Exchanges
from agentcache.server.watch.journal import Journal
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine
    from agentcache.server.watch.trace_file import TraceFile


@dataclass(frozen=True)
class Context:
    """One app's engine, settings and state; routes get it when they are made, so that nothing is global."""

    engine: AsyncEngine
    settings: Settings
    desk: SessionDesk
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    misses: Counter[str] = field(default_factory=Counter)
    """Answers by the code of the ``miss`` that they carried."""
    said: SaidReplies = field(default_factory=SaidReplies)
    journal: Journal = field(default_factory=Journal)
    exchanges: Exchanges = field(default_factory=Exchanges)
    trace: TraceFile | None = None

    @cached_property
    def planner(self) -> ReplyPlanner:
        """How the served model's replies are planned and read."""
        tokenizer, info = self.engine.tokenizer, self.engine.info
        template = tokenizer.chat_templates.get("tool_use") or tokenizer.chat_template or ""
        return ReplyPlanner(tokenizer, template, self.settings.tool_parser, info.vocab_size)

    @cached_property
    def text_bounds(self) -> TextBounds:
        """What can be told to be too long before it is tokenised."""
        return TextBounds(self.engine.tokenizer, self.engine.info.capacity)

    def check_model(self, name: str | None) -> None:
        """A request may name the model as ``/v1/models`` does, as ``--model`` did, by a ``--model-name``, or not at all.

        Raises:
            ApiError: 404 for any other name.
        """
        served = self.engine.info.model_name
        if name is not None and name not in {served, self.settings.model, *self.settings.model_names}:
            raise ApiError(
                404, f"model: got {shown(name)}, expected {shown(served)}", param="model", code="model_not_found"
            )

    def check_open(self) -> None:
        """
        Raises:
            ApiError: 503 once the server is shutting down.
        """
        if self.lifecycle.closing:
            raise shutting_down()

    def root(self, key: str | None, salt: str | None) -> bytes:
        """Namespace of a request: no salt and the salt "" differ."""
        return self.desk.home(key, salt).root

    def encode(self, text: str, *, add_special_tokens: bool = True, to_fit: bool = True) -> list[int]:
        """Ids of a raw prompt, begun as the model expects.

        Whoever sends a raw prompt writes all of it, role markers too, so control tokens that it spells out are parsed;
        text inside chat messages never becomes one (see ``ChatRenderer``).

        Raises:
            RequestError: with ``to_fit``, for a text that cannot fit the context; told without tokenising it.
        """
        if to_fit:
            self.text_bounds.check(text)
        tokenizer = self.engine.tokenizer
        return tokenizer.encode_prompt(text) if add_special_tokens else tokenizer.encode(text)
