"""What ``client.session(...)`` is given, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache_sdk._calls import message_list
from agentcache_sdk._durations import parse_ttl
from agentcache_sdk.cache_warnings import MIN_TOKENS_LOST, WarningSink
from agentcache_sdk.tools import Tool, ToolSet

Message = dict[str, Any]


@dataclass(frozen=True)
class SessionArguments:
    """As the user gave them."""

    system: str | None = None
    tools: Sequence[Tool] | None = None
    ttl: str | float | None = None
    model: str | None = None
    ignore: str | Iterable[str] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    prompt: str | Sequence[int] | None = None
    metadata: Mapping[str, Any] | None = None
    from_snapshot: str | None = None
    session_id: str | None = None
    pad: str = "off"
    min_tokens_lost: int | None = None

    def checked(self, min_tokens_lost: int = MIN_TOKENS_LOST) -> SessionOptions:
        """
        Args:
            min_tokens_lost: the client's.

        Raises:
            TypeError: a tool that no schema can be made for, or messages that are none.
            ValueError: a ``ttl`` or a code in ``ignore`` that is none, or arguments that exclude each other.
        """
        self._exclude("prompt", ("system", "tools", "messages"), "a raw session has no messages and no tools")
        given = ("system", "messages", "prompt", "model")
        self._exclude("from_snapshot", given, "a snapshot has its own")
        if self.pad not in ("off", "system"):
            raise ValueError(f'pad: got {self.pad!r}, expected "off" or "system"')
        system: tuple[Message, ...] = ({"role": "system", "content": self.system},) if self.system else ()
        return SessionOptions(
            head=(*system, *message_list(self.messages)),
            tools=ToolSet.of(self.tools or ()),
            ttl_s=parse_ttl(self.ttl),
            model=self.model,
            prompt=self.prompt if self.prompt is None or isinstance(self.prompt, str) else tuple(self.prompt),
            metadata=None if self.metadata is None else dict(self.metadata),
            from_snapshot=self.from_snapshot,
            session_id=self.session_id,
            pad=self.pad == "system",
            sink=WarningSink(self.ignore, min_tokens_lost if self.min_tokens_lost is None else self.min_tokens_lost),
        )

    def _exclude(self, name: str, others: Sequence[str], why: str) -> None:
        if getattr(self, name) is None:
            return
        for other in others:
            if getattr(self, other):
                raise ValueError(f"{other}: cannot be given together with {name}: {why}")


@dataclass(frozen=True)
class SessionOptions:
    """Checked.

    Attributes:
        head: messages before the first turn.
        ttl_s: seconds.
        prompt: beginning of a raw session; ``None``: a session of messages.
        from_snapshot: name of the snapshot to begin with.
        session_id: the session of the server's to go on with.
        pad: fill the static part up to a page boundary.
    """

    head: tuple[Message, ...]
    tools: ToolSet
    ttl_s: float | None
    model: str | None
    prompt: str | tuple[int, ...] | None
    metadata: dict[str, Any] | None
    from_snapshot: str | None
    session_id: str | None
    pad: bool
    sink: WarningSink

    def fields(self) -> dict[str, Any]:
        """The body that creates the session.  Tools go with a snapshot only where they are new: see ``add_tools``."""
        return {
            "model": self.model,
            "messages": list(self.head) or None,
            "tools": None if self.from_snapshot else list(self.tools.schemas) or None,
            "prompt": self.prompt,
            "from_snapshot": self.from_snapshot,
            "ttl_s": self.ttl_s,
            "metadata": self.metadata,
        }
