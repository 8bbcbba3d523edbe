"""A conversation of openai-agents' that knows what the server's cache did for it."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from agents import RunConfig
from agents.memory import SessionSettings

from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.cache_warnings import MIN_TOKENS_LOST, CallSite, WarningSink
from agentcache_sdk.client import Client
from agentcache_sdk.openai_agents._bond import BOND, Bond
from agentcache_sdk.openai_agents._hearing import Api
from agentcache_sdk.openai_agents._ledger import Heard, Ledger, ModelCall
from agentcache_sdk.openai_agents._log import FORMAT, SessionLog
from agentcache_sdk.openai_agents._sites import user_site
from agentcache_sdk.openai_agents.config import CachedProvider, run_config
from agentcache_sdk.openai_agents.heads import Announcement, Announcements, Item
from agentcache_sdk.report import SessionReport


@dataclass
class _Talk:
    """What a session remembers."""

    items: list[Item] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    announcements: Announcements = field(default_factory=Announcements)

    def copy(self) -> _Talk:
        return _Talk(copy.deepcopy(self.items), self.ledger.copy(), self.announcements.copy())

    def truncate(self, items: int, note: str) -> None:
        del self.items[items:]
        self.announcements.truncate(items)
        self.ledger.truncate(items, note)

    def replay(self, entry: Mapping[str, Any]) -> None:
        """A line of the log."""
        self.items += entry.get("add", ())
        if "keep" in entry:
            self.truncate(entry["keep"], entry["note"])
        if "call" in entry:
            self.ledger.add(ModelCall.from_json(entry["call"]))
        if "announce" in entry:
            self.announcements.entries.append(Announcement.from_json(entry["announce"]))

    def entries(self) -> list[dict[str, Any]]:
        """Lines of a log that come to this."""
        made: list[dict[str, Any]] = [{"add": self.items}] if self.items else []
        made += [{"call": call.to_json()} for call in self.ledger.calls]
        return made + [{"announce": entry.to_json()} for entry in self.announcements.entries]


class CachedSession:
    """openai-agents' ``Session``: append-only, given back exactly as it came, with a report of what each call found cached.

    Runs must reach the server through this package's models, such as those of ``run_config()``; with other models the
    conversation works as it does with any session, and nothing is known about the cache.

    Args:
        client: the server.
        session_id: the conversation's name; default: a new one.
        path: a file of JSON lines that the conversation is kept in, and gone on with if it is there.
        api: what ``run_config()`` uses, ``"chat"`` or ``"responses"``.
        session_settings: openai-agents' own.  A ``limit`` makes a sliding window, which breaks the cache on every turn.
        ignore: warning codes, or beginnings of codes, to be silent about.
        min_tokens_lost: losses below this are not worth a warning.

    Raises:
        ValueError: the file holds another session, or is none.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        session_id: str | None = None,
        *,
        path: str | PathLike[str] | None = None,
        api: Api = "chat",
        session_settings: SessionSettings | None = None,
        ignore: str | Iterable[str] = (),
        min_tokens_lost: int = MIN_TOKENS_LOST,
    ) -> None:
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._provider = CachedProvider(client, api)
        self._sink = WarningSink(ignore, min_tokens_lost)
        self._site = user_site()
        self._lock = threading.RLock()
        self._talk = _Talk()
        self._log = None if path is None else SessionLog(Path(path))
        self.session_id = self._begun(session_id)

    def _begun(self, session_id: str | None) -> str:
        """The name, with everything that the file remembers."""
        entries = iter(self._log.read() if self._log else ())
        first = next(entries, None)
        if first is None:
            name = session_id or f"agents-{uuid.uuid4().hex}"
            self._write({"agentcache_session": FORMAT, "session_id": name})
            return name
        name = str(first["session_id"])
        if session_id not in (None, name):
            raise ValueError(f"session_id: got {session_id!r}, but the file holds {name!r}")
        for entry in entries:
            self._talk.replay(entry)
        return name

    def _write(self, *entries: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.write(*entries)

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The conversation, oldest item first; with a limit, its last ``limit`` items."""
        settings = self.session_settings
        limit = limit if limit is not None or settings is None else settings.limit
        with self._lock:
            items = copy.deepcopy(self._talk.items)
        cut = 0 if limit is None or limit < 0 else max(0, len(items) - limit)
        BOND.set(Bond(self, user_site(self._site), cut))
        return items[cut:]

    async def add_items(self, items: list[Item]) -> None:
        """Append; with a file, it is on the disk when this returns.

        Raises:
            TypeError: an item that JSON has no form for, in a session with a file.
        """
        if not items:
            return
        with self._lock:
            self._write({"add": items})
            self._talk.items += copy.deepcopy(items)

    async def pop_item(self) -> Item | None:
        """Take the newest item back; ``None`` when there is none.  What stands before it stays cached."""
        with self._lock:
            if not self._talk.items:
                return None
            item = self._talk.items[-1]
            self._keep(len(self._talk.items) - 1, "the newest item was taken back")
        return item

    async def clear_session(self) -> None:
        """Forget the conversation; the report stays."""
        with self._lock:
            self._keep(0, "the session was cleared")

    def mark(self) -> int:
        """A place to roll back to: how many items there are."""
        with self._lock:
            return len(self._talk.items)

    def rollback(self, to: int) -> None:
        """Drop everything behind a ``mark()``.  What stands before it stays cached.

        Raises:
            ValueError: there is no such place.
        """
        with self._lock:
            if not 0 <= to <= len(self._talk.items):
                raise ValueError(f"rollback: got {to}, expected between 0 and {len(self._talk.items)} items")
            self._keep(to, f"rolled back from {len(self._talk.items)} to {to} items")

    def _keep(self, items: int, what: str) -> None:
        self._write({"keep": items, "note": what})
        self._talk.truncate(items, what)

    def fork(self, n: int = 1) -> list[CachedSession]:
        """``n`` sessions that go on from here, each on its own; what was said so far is cached once for all of them.

        Forks of a session with a file have files of their own beside it, named after them.

        Raises:
            ValueError: ``n`` is less than 1.
        """
        if n < 1:
            raise ValueError(f"fork: got {n}, expected at least 1")
        return [self._twin() for _ in range(n)]

    def _twin(self) -> CachedSession:
        twin = copy.copy(self)
        twin.session_id = f"agents-{uuid.uuid4().hex}"
        twin.session_settings = copy.copy(self.session_settings)
        twin._site = user_site()
        twin._lock = threading.RLock()
        twin._sink = self._sink.copy()
        with self._lock:
            twin._talk = self._talk.copy()
        if self._log is not None:
            path = self._log.path
            twin._log = SessionLog(path.with_name(f"{path.stem}.{twin.session_id}{path.suffix}"))
            header = {"agentcache_session": FORMAT, "session_id": twin.session_id}
            twin._log.write(header, *twin._talk.entries())
        return twin

    @property
    def path(self) -> Path | None:
        """The file that the conversation is kept in."""
        return None if self._log is None else self._log.path

    @property
    def items(self) -> tuple[Item, ...]:
        """A copy of the conversation."""
        with self._lock:
            return tuple(copy.deepcopy(self._talk.items))

    def report(self) -> SessionReport:
        """A row for every model call: tokens sent, cached, computed and lost, why, and what to do about it."""
        with self._lock:
            return self._talk.ledger.report()

    def run_config(self, *, preamble: str | None = None, **fields: Any) -> RunConfig:
        """``run_config(...)`` on the session's server, over connections that its forks share."""
        self._site = user_site()  # a streamed run's own line cannot be seen from its task
        return run_config(provider=self._provider, preamble=preamble, **fields)

    async def aclose(self) -> None:
        """Close the running event loop's connections, those of the forks included; the session stays usable."""
        await self._provider.aclose()

    async def __aenter__(self) -> CachedSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def hear(self, heard: Heard, site: CallSite) -> None:
        """For this package's models: take in an answered call.

        Raises:
            CacheWarning: it lost cache, and warnings are errors.
        """
        with self._lock:
            judgement = self._talk.ledger.judge(heard)
            self._write({"call": judgement.row.to_json()})
            self._talk.ledger.add(judgement.row)
        for finding, sentence in judgement.told:
            self._sink.emit(finding, site, sentence)

    def knows(self, items: Sequence[Item]) -> bool:
        """For this package's models: whether a run's input can be this session's."""
        first = next((item for item in items if item.get("role") != "system"), None)
        with self._lock:
            return not self._talk.items or first in self._talk.items

    def announced(self, agent: str, text: str, items: Sequence[Item], cut: int) -> list[Item]:
        """For ``run_config(preamble=...)``: ``items`` with every agent's instructions where it took over."""
        with self._lock:
            made = self._talk.announcements.turn_to(agent, text, items, cut)
            if made is not None:
                self._write({"announce": made.to_json()})
            return self._talk.announcements.woven(items, cut)
