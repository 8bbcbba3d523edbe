"""The lines of a Claude Code transcript, and how they hang together.

Lines name the line before them (``parentUuid``), which makes a tree: forks begin where somebody went back, a compaction begins
a new root.  A reply is written in several lines, one a block, with the same message id; each result of a tool hangs below the
block that called it.  So of parallel calls only one result lies on the way from an answer back to the root, and the others
are found by the id of their call::

    user ── text ── call 1 ── call 2 ── result 2 ── next reply          all of: text, call 1, call 2   is one message
                      └── result 1                                      results 1 and 2                are the next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentcache.dialects.anthropic.blocks import Calls, Placed

Block = Mapping[str, Any]


class Piece(NamedTuple):
    """A content block and where it stands: ``message.content[position]`` of a line, or all of its content."""

    block: Block
    line: int
    position: int | None


@dataclass(slots=True, eq=False)
class Said:
    """One message of a request, put together from lines; the same object in all requests that repeat it.

    Attributes:
        placed: as messages of a chat, once it was translated.
    """

    role: str
    pieces: Sequence[Piece]
    placed: Sequence[Placed] | None = None


@dataclass(slots=True, eq=False)
class Node:
    """A line that has a place in the tree.

    Attributes:
        role: ``user`` or ``assistant``; ``None`` for lines that are no part of a request.
        before: the line before it in the file that belongs to the same agent.
        answer: key of the reply that it is a part of.
    """

    uuid: str
    line: int
    parent: str | None
    agent: str | None
    role: str | None = None
    pieces: Sequence[Piece] = ()
    before: Node | None = None
    answer: str | None = None


@dataclass(slots=True, eq=False)
class Answer:
    """A reply of the model, as far as it was read.

    Attributes:
        key: its message id, where it has one.
        agent: who it was for: ``None`` for the user's own conversation.
        synthetic: written by the program, not by a model.
        last_line: the latest line that is a part of it.
    """

    key: str
    first: Node
    agent: str | None
    model: str | None
    session: str | None
    synthetic: bool
    pieces: list[Piece] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    last_line: int = 0


class _Sent(NamedTuple):
    """What was said before a reply."""

    key: str
    said: Sequence[Said]


class Tree:
    """All lines of a transcript so far.

    Attributes:
        calls: of all tools.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self._nodes: dict[str, Node] = {}
        self._latest: dict[str | None, Node] = {}
        self._answers: dict[str, Answer] = {}
        self._results: dict[str, list[Node]] = {}
        self._moved: dict[str, str] = {}
        self._kept_behind: dict[str, tuple[str, frozenset[str]]] = {}
        self._sent: dict[str | None, _Sent] = {}

    def add(self, value: Mapping[str, Any], line: int) -> Answer | None:
        """One line; the reply that it is a part of."""
        uuid = value.get("uuid")
        if not isinstance(uuid, str) or uuid in self._nodes:  # later compactions write lines a second time
            return None
        parent = value.get("parentUuid")
        agent = self._agent(value, uuid, parent)
        before = self._latest.get(agent)
        if parent is None and "parentUuid" not in value and before is not None:
            parent = before.uuid
        node = Node(uuid, line, parent if isinstance(parent, str) else None, agent, before=before)
        self._nodes[uuid] = self._latest[agent] = node
        if value.get("subtype") == "compact_boundary":
            self._note_kept(value.get("compactMetadata"))
        message = value.get("message")
        if not isinstance(message, Mapping) or value.get("isApiErrorMessage") or value.get("isVirtual"):
            return None
        if value.get("type") == "user":
            self._add_user(node, message)
            return None
        return self._add_reply(node, value, message) if value.get("type") == "assistant" else None

    def before(self, answer: Answer) -> Sequence[Said]:
        """The messages that ``answer`` answers, as far as they were read.

        What was said before the agent's latest reply is taken as it is where the way leads past that reply.
        """
        sent = self._sent.get(answer.agent)
        way, found = self._way_to(answer.first, None if sent is None else sent.key)
        told = _Told(self._answers, self._results, {node.uuid for node in way})
        if found and sent is not None:
            told.add_answer(sent.key)
        for node in way:
            told.add(node)
        said = [*(sent.said if found and sent is not None else ()), *_merged(told.said)]
        self._sent[answer.agent] = _Sent(answer.key, said)
        return said

    # -- reading lines

    def _agent(self, value: Mapping[str, Any], uuid: str, parent: Any) -> str | None:
        """Whose line it is; agents of old versions have no id and are called by their first line."""
        if not value.get("isSidechain"):
            return None
        if isinstance(named := value.get("agentId"), str):
            return named
        above = self._nodes.get(parent) if isinstance(parent, str) else None
        return above.agent if above is not None and above.agent is not None else uuid[:8]

    def _add_user(self, node: Node, message: Mapping[str, Any]) -> None:
        node.role = "user"
        # The line with the call of a result can be missing; nobody could send such a result.
        node.pieces = [piece for piece in pieces_of(message, node.line) if self._is_asked(piece.block)]
        for piece in node.pieces:
            if isinstance(call := piece.block.get("tool_use_id"), str):
                self._results.setdefault(call, []).append(node)

    def _is_asked(self, block: Block) -> bool:
        return block.get("type") != "tool_result" or block.get("tool_use_id") in self.calls.names

    def _add_reply(self, node: Node, value: Mapping[str, Any], message: Mapping[str, Any]) -> Answer:
        named = message.get("id") or value.get("requestId")
        key = named if isinstance(named, str) and named else node.uuid
        node.role, node.answer = "assistant", key
        answer = self._answers.get(key)
        if answer is None:
            model, session = message.get("model"), value.get("sessionId")
            answer = self._answers[key] = Answer(
                key, node, node.agent,
                model if isinstance(model, str) else None,
                session if isinstance(session, str) else None,
                model == "<synthetic>",
            )  # fmt: skip
        known = [piece.block for piece in answer.pieces]
        new = [piece for piece in pieces_of(message, node.line) if piece.block not in known]
        answer.pieces += new
        self.calls.names |= {str(piece.block.get("id")): "" for piece in new if piece.block.get("type") == "tool_use"}
        answer.last_line = node.line
        if isinstance(usage := message.get("usage"), Mapping):
            answer.usage = usage
        return answer

    def _note_kept(self, metadata: Any) -> None:
        """Messages that a compaction keeps follow its summary, although they were written before it."""
        if not isinstance(metadata, Mapping):
            return
        kept, segment = metadata.get("preservedMessages"), metadata.get("preservedSegment")
        if isinstance(kept, Mapping) and isinstance(kept.get("uuids"), list):
            anchor, uuids = kept.get("anchorUuid"), [uuid for uuid in kept["uuids"] if isinstance(uuid, str)]
        elif isinstance(segment, Mapping):
            anchor, uuids = segment.get("anchorUuid"), self._segment(segment.get("headUuid"), segment.get("tailUuid"))
        else:
            return
        if isinstance(anchor, str) and uuids:
            self._moved.update(zip(uuids, (anchor, *uuids), strict=False))
            self._kept_behind[anchor] = uuids[-1], frozenset(uuids)
            self._sent.clear()

    def _segment(self, head: Any, tail: Any) -> list[str]:
        if not isinstance(head, str) or not isinstance(tail, str):
            return []
        found = [tail]
        node = self._nodes.get(tail)
        while node is not None and node.uuid != head:
            node = self._above(node)
            if node is None or node.uuid in found:
                return []
            found.append(node.uuid)
        return found[::-1]

    # -- walking

    def _way_to(self, node: Node, answer: str | None) -> tuple[Sequence[Node], bool]:
        """From the root, or from behind a reply if it leads past that, to the line above ``node``; and which of the two."""
        way: list[Node] = []
        seen = {node.uuid}
        at = self._above(node)
        while at is not None and at.uuid not in seen:
            if answer is not None and at.answer == answer:
                return way[::-1], True
            seen.add(at.uuid)
            way.append(at)
            at = self._above(at)
        return way[::-1], False

    def _above(self, node: Node) -> Node | None:
        parent = self._moved.get(node.uuid, node.parent)
        if parent is None:
            return None
        tail, kept = self._kept_behind.get(parent, (parent, frozenset()))
        if node.uuid not in kept:
            parent = tail
        # A line can name one that was never written.
        return self._nodes.get(parent, node.before)


class _Told:
    """Lines on a way, as messages."""

    def __init__(self, answers: Mapping[str, Answer], results: Mapping[str, Sequence[Node]], on_way: set[str]) -> None:
        self.said: list[Said] = []
        self._answers = answers
        self._results = results
        self._on_way = on_way
        self._told: set[str] = set()

    def add(self, node: Node) -> None:
        if node.role == "user":
            if node.uuid not in self._told:
                self._told.add(node.uuid)
                self.said.append(Said("user", node.pieces))
        elif node.answer is not None and node.answer not in self._told:
            self.add_answer(node.answer)

    def add_answer(self, key: str) -> None:
        """A whole reply, and behind it the results of its calls."""
        self._told.add(key)
        pieces = tuple(self._answers[key].pieces)
        self.said.append(Said("assistant", pieces))
        for piece in pieces:
            if piece.block.get("type") == "tool_use" and isinstance(call := piece.block.get("id"), str):
                found = self._results.get(call, ())
                # A call is made again where somebody went back: its result on the way counts.
                for node in [node for node in found if node.uuid in self._on_way][:1] or found[:1]:
                    self.add(node)


def pieces_of(message: Mapping[str, Any], line: int) -> tuple[Piece, ...]:
    """The content of ``message``, as blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return (Piece({"type": "text", "text": content}, line, None),)
    if not isinstance(content, list):
        return ()
    return tuple(Piece(block, line, index) for index, block in enumerate(content) if isinstance(block, Mapping))


def _merged(said: Sequence[Said]) -> list[Said]:
    """Neighbours of one role are one message, as they are sent."""
    merged: list[Said] = []
    for message in said:
        if not message.pieces:
            continue
        if merged and merged[-1].role == message.role:
            merged[-1] = Said(message.role, (*merged[-1].pieces, *message.pieces))
        else:
            merged.append(message)
    return merged
