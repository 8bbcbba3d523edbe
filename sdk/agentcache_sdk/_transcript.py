"""A session's messages: append-only while turns run, truncated by rollback, never edited."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from agentcache_sdk._calls import volatile_text
from agentcache_sdk._codes import CODES, code_of_miss
from agentcache_sdk._findings import lost_tokens
from agentcache_sdk.report import ReportRow, SessionReport
from agentcache_sdk.tools import schema_name
from agentcache_sdk.types import CacheReport, PromptTokensDetails, SessionInfo, Turn, Usage

Message = dict[str, Any]
Schema = dict[str, Any]


@dataclass(frozen=True)
class TurnRecord:
    """What one turn added: the messages that were sent, then the reply; none where another client or no chat made it."""

    messages: tuple[Message, ...]
    turn: Turn
    lost: int
    tools: tuple[Schema, ...] = ()
    """Those that were added with this turn."""


@dataclass
class Transcript:
    """::

    [ head: system ][ turn 0: user, assistant ][ turn 1: tool, tool, assistant ] ... [ pending: tool results, tools ]
    """

    head: tuple[Message, ...] = ()
    turns: list[TurnRecord] = field(default_factory=list)
    pending: list[Message] = field(default_factory=list)
    tools: tuple[Schema, ...] = ()
    """Of the head."""
    new_tools: tuple[Schema, ...] = ()
    """Those that the next turn adds."""
    past: tuple[ReportRow, ...] = ()
    """Rows of turns that a compaction dropped."""
    beginning: str | None = None
    """Why the first turn finds little cached, where that is known better than by the server."""
    resumed: bool = False
    """Another client began it, and the server does not tell what was said: ``messages`` begins after that."""

    @property
    def committed(self) -> list[Message]:
        """Head and finished turns, in order.  The messages themselves; not to be changed."""
        return [*self.head, *(message for record in self.turns for message in record.messages)]

    @property
    def messages(self) -> list[Message]:
        """Everything, results that wait for the next turn included."""
        return [*self.committed, *self.pending]

    @property
    def previous_prompt(self) -> int:
        """Prompt tokens of the last turn: what the next one should find cached."""
        return self.turns[-1].turn.usage.prompt_tokens if self.turns else 0

    @property
    def known_tools(self) -> dict[str, Schema]:
        """All tools by name, those that the next turn adds included."""
        added = (schema for record in self.turns for schema in record.tools)
        return {schema_name(schema): schema for schema in (*self.tools, *added, *self.new_tools)}

    def add_tools(self, schemas: Iterable[Schema]) -> None:
        """Have the next turn add those that are not known yet.

        Raises:
            ValueError: a known tool with another schema.
        """
        known = self.known_tools
        fresh: list[Schema] = []
        for schema in schemas:
            name = schema_name(schema)
            if name not in known:
                fresh.append(schema)
            elif known[name] != schema:
                raise ValueError(
                    f"add_tools: the session has another tool called {name!r}, whose schema the model has read; "
                    "give this one another name"
                )
        self.new_tools += tuple(fresh)

    def open_calls(self) -> list[str] | None:
        """Ids of the last reply's tool calls that have no result yet; ``None``: this client has not seen that reply."""
        last = self.committed[-1:]
        if self.resumed and not last:
            return None
        calls = [str(call.get("id") or "") for message in last for call in message.get("tool_calls") or []]
        answered = {message["tool_call_id"] for message in self.pending}
        return [call for call in calls if call not in answered]

    def add_tool_result(self, call_id: str, content: Any) -> None:
        """Record a result for the next turn to send.

        Raises:
            ValueError: no tool call of that id is waiting.
        """
        waiting = self.open_calls()
        if waiting is not None and call_id not in waiting:
            raise ValueError(
                f"tool_result: got call id {call_id!r}, expected one of {waiting or 'none: no call is open'}"
            )
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        # Half a surrogate pair, as in names of files that are no UTF-8, cannot be sent: it is written as an escape.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        self.pending.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def new_messages(self, text: str | None, volatile: Mapping[str, Any] | None) -> list[Message]:
        """What the next turn sends beyond what is committed.

        Raises:
            TypeError: ``text`` is not text.
            ValueError: there is nothing to send, or tool calls without a result.
        """
        if text is not None and not isinstance(text, str):
            raise TypeError(f"text: got {type(text).__name__}, expected str")
        if text is None and (missing := self.open_calls()):
            raise ValueError(f"continuing needs a result for every tool call; none was given for {missing}")
        last = "\n\n".join(part for part in (text or "", volatile_text(volatile)) if part)
        if text is None and not last and not self.pending:
            raise ValueError("nothing to send: pass a text, or give tool results first")
        user = [{"role": "user", "content": last}] if text is not None or last else []
        return [*self.pending, *user]

    def commit(self, sent: list[Message], turn: Turn) -> None:
        """Append a finished turn; its tool results and tools are no longer pending."""
        lost = lost_tokens(self.previous_prompt, turn.cache)
        reply = (replayed(turn.message),) if turn.message else ()  # a raw completion has none
        self.turns.append(TurnRecord((*sent, *reply), turn, lost, self.new_tools))
        self.pending, self.new_tools = [], ()

    def kept(self, turns: int | None) -> Transcript:
        """A copy with the first ``turns`` turns and nothing behind them, or (``None``) with everything.

        Raises:
            ValueError: there are not that many.
        """
        if turns is None:
            return replace(self, turns=list(self.turns), pending=list(self.pending))
        if not 0 <= turns <= len(self.turns):
            raise ValueError(f"got turn {turns}, expected between 0 and {len(self.turns)} (how many turns are kept)")
        return replace(self, turns=self.turns[:turns], pending=[], new_tools=())

    def report(self, notes: tuple[str, ...]) -> SessionReport:
        rows = [*self.past]
        for index, record in enumerate(self.turns):
            cache = record.turn.cache
            prompt = record.turn.usage.prompt_tokens
            why, fix = _why(cache, index > 0) if record.lost or not index else ("", "")
            if not index and self.beginning:
                why, fix = self.beginning, ""
            rows.append(ReportRow(index, prompt, cache.cached_tokens, cache.computed_tokens, record.lost, why, fix))
        return SessionReport(tuple(rows), notes)


def _why(cache: CacheReport, later: bool) -> tuple[str, str]:
    """Why a turn lost something and what to do about it; of a first turn, why not more of it was cached."""
    miss = cache.miss
    if miss is None:
        return "", ""
    why = f"{miss.code}{': ' + miss.detail if miss.detail else ''}"
    code = code_of_miss(miss.code) if later else None
    return (why, "") if code is None else (f"{code} {why}", CODES[code].fix)


def replayed(message: Mapping[str, Any]) -> Message:
    """The reply as later turns send it: as the server wrote it, without fields that only say "none"."""
    kept = {key: value for key, value in message.items() if value is not None}
    return {"role": "assistant", "content": message.get("content"), **copy.deepcopy(kept)}


def transcript_of(info: SessionInfo) -> Transcript:
    """A session that another client began: what was said, where the server tells it, and what its turns cost."""
    counts = [turn.messages for turn in info.turns]
    said = info.messages
    told = said is not None and sum(counts) <= len(said)
    rest = iter(said if said is not None and told else ())
    head = tuple(islice(rest, len(said or ()) - sum(counts))) if told else ()
    schemas = {schema_name(schema): schema for schema in info.tools or ()}
    added = {name for turn in info.turns for name in turn.tools or ()}
    tools = tuple(schema for name, schema in schemas.items() if name not in added)
    transcript = Transcript(head, tools=tools, resumed=not told and info.kind != "raw")
    for turn in info.turns:
        cost = {"prompt_tokens": turn.prompt_tokens, "cached_tokens": turn.cached_tokens}
        cache = CacheReport(**cost, computed_tokens=turn.computed_tokens, miss=turn.miss)
        usage = Usage(
            prompt_tokens=turn.prompt_tokens,
            completion_tokens=turn.completion_tokens,
            total_tokens=turn.prompt_tokens + turn.completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=turn.cached_tokens),
        )
        lost = lost_tokens(transcript.previous_prompt, cache)
        messages = tuple(islice(rest, turn.messages))
        new = tuple(schemas[name] for name in turn.tools or () if name in schemas)
        transcript.turns.append(TurnRecord(messages, Turn(usage=usage, cache=cache), lost, new))
    return transcript
