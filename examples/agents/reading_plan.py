"""Which tool the example agent calls next.

A small model does not drive tools reliably, so the calls are chosen here, from what the tools really answered: list the
files, read the largest that no call has read yet, search for a name that it defines or imports, read where the name is
used, and again from the listing.  The same folder gives the same calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_DEFINITION = re.compile(r"^\s*(?:async\s+def|def|class|function|fn|func|type|interface)\s+([A-Za-z_]\w{3,})", re.M)
_IMPORT = re.compile(r"^from\s+(?!__future__)\S+\s+import\s+\(?\s*([A-Za-z_]\w{3,})", re.M)
_LISTED = re.compile(r"^(\S+) \((\d+) lines\)$", re.M)
_HIT = re.compile(r"^(\S+?):(\d+): ", re.M)


@dataclass(frozen=True)
class PlannedCall:
    """A tool call, what the agent wants to know from it, and a short name for tables."""

    name: str
    arguments: dict[str, object]
    question: str
    label: str

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}({given})"


@dataclass
class ReadingPlan:
    """Chooses calls for one agent that studies ``folder``."""

    folder: str = "."
    lines: int = 24
    """How many lines to read at a time."""
    _unread: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def first_call(self) -> PlannedCall:
        question = "Which of these files would you read first, and why?"
        return PlannedCall("list_files", {"folder": self.folder}, question, f"list {self.folder.rpartition('/')[2]}")

    def next_call(self, call: PlannedCall, result: str) -> PlannedCall:
        """The call after ``call``, which was answered by ``result``."""
        if call.name == "list_files":
            self._unread = [match[1] for match in _LISTED.finditer(result)]
        if call.name == "read_file" and (names := self._new_names(result)):
            name = names[0]
            self._seen.add(name)
            question = f"Who uses {name}, as far as you see?"
            return PlannedCall("search_text", {"pattern": rf"\b{name}\b"}, question, f"search {name}")
        if call.name == "search_text" and (hit := self._new_hit(result)):
            path, line = hit
            return self._read(path, max(1, line - 4), "What happens around the line that was found?")
        if self._unread:
            return self._read(self._unread.pop(0), 1, "What is this file for? Answer in one sentence.")
        return self.first_call()

    def _read(self, path: str, start: int, question: str) -> PlannedCall:
        self._seen.add(path)
        self._unread = [other for other in self._unread if other != path]
        label = f"read {path.rpartition('/')[2]}:{start}"
        return PlannedCall("read_file", {"path": path, "start": start, "lines": self.lines}, question, label)

    def _new_names(self, result: str) -> list[str]:
        """Names that the text defines, then those that it imports, without those that were searched for before."""
        found = [match[1] for pattern in (_DEFINITION, _IMPORT) for match in pattern.finditer(result)]
        return [name for name in found if name not in self._seen]

    def _new_hit(self, result: str) -> tuple[str, int] | None:
        """The first hit in a file that the agent has not read."""
        hits = ((match[1], int(match[2])) for match in _HIT.finditer(result))
        return next((hit for hit in hits if hit[0] not in self._seen), None)
