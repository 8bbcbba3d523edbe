"""What varies in a prompt: AC101 to AC106, and AC203 inside texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentcache.lint.finding import Severity
from agentcache.lint.python.places import Point
from agentcache.lint.python.prompts import Prompt
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.report import Defect
from agentcache.lint.python.sources import Source
from agentcache.lint.python.texts import Slot, Text, Words, written

_ENOUGH = 64
"""Characters of fixed text, about a page of tokens, that make it worth asking what stands before them."""
_LITTLE = 16
"""Less than this behind a fact about the machine, and the facts stand at the end."""
_LABEL = 48
"""Less than this between two facts is the name of the second."""
_MOST_BEFORE = 100
"""More text than this in front of a slot, and it does not stand at the beginning, unless there is far more behind it."""

_USER = {
    "user",
    "username",
    "customer",
    "patient",
    "student",
    "account",
    "email",
    "tenant",
    "question",
    "query",
    "task",
}
_USER |= {"topic", "ticket", "goal", "persona_name", "request", "profile"}
_RETRIEVED = {"docs", "documents", "document", "context", "contexts", "retrieved", "chunks", "passages", "snippets"}
_RETRIEVED |= {"memories", "memory", "knowledge", "excerpts", "retriever", "similarity"}

_LONGEST_SOURCE = 60

_PLACES = {
    "system": "the system text",
    "tool": "a tool's definition",
    "earlier": "a message that has others behind it",
    "constant": "the prompt",
}
_HELP = {
    "AC101": "say the time at the end of the newest message (volatile={...} of a session does), or let the model ask a tool "
    "for it",
    "AC102": "keep ids of runs and temporary paths out of the text that requests share; name them in the newest message",
    "AC103": "choose once and keep it, or put what varies into the newest message",
    "AC104": "put facts about the machine behind all fixed text: at the end of the system text, or in the first user message",
    "AC203": "sort it: sorted(…)",
}


@dataclass(frozen=True, slots=True)
class Requests:
    """How the module sends its prompts.

    Attributes:
        places: scope (by ``id``) -> where it calls a model.
        with_tools: some of them have tools, which most templates write behind the system text.
    """

    places: Mapping[int, Sequence[Point]]
    with_tools: bool


def defects_of(reader: Reader, prompt: Prompt, requests: Requests) -> Iterator[Defect]:
    """What is wrong with the text of a prompt."""
    value = reader.prompt(prompt.node, prompt.point)
    longest = max((written(text) for text in value), default=0)
    if prompt.manner == "named" and longest < 20:
        return
    best: dict[Hashable, tuple[int, Slot]] = {}
    for text in value:
        for index, piece in enumerate(text):
            if isinstance(piece, Slot) and piece.source is not None:
                behind = written(text[index + 1 :])
                if piece.source.code == "AC104":
                    behind = _sentences(text[:index], text[index + 1 :])
                key = _defect_of(piece, piece.source)
                if key not in best or best[key][0] < behind:
                    best[key] = (behind, piece)
    for behind, slot in best.values():
        yield from _varying(reader, prompt, slot, behind, requests)
    if prompt.part == "system":
        yield from _particular(prompt, value)


def _sentences(before: Text, text: Text) -> int:
    """How much is written behind a fact: the words between two facts name the next one, and a closing word is little."""
    last = max((index for index, piece in enumerate(text) if isinstance(piece, Slot)), default=-1)
    between = sum(
        len(piece.text) for piece in text[: last + 1] if isinstance(piece, Words) and len(piece.text) >= _LABEL
    )
    behind = between + written(text[last + 1 :])
    return behind if behind >= _ENOUGH or behind * 4 >= written(before) else 0


def _defect_of(slot: Slot, source: Source) -> Hashable:
    """Equal for slots of one prompt that are one defect: two words of the same time, the lines of a block of facts."""
    if source.pace == "order":
        return id(slot.node)
    return source.code if source.code == "AC104" else id(source.node)


def _varying(reader: Reader, prompt: Prompt, slot: Slot, behind: int, requests: Requests) -> Iterator[Defect]:
    source = slot.source
    if source is None:
        return
    once = prompt.manner == "kept" or _is_once(prompt, slot, requests)
    if prompt.part == "earlier" and (once or source.pace not in ("instant", "order")):
        return
    known = max(behind, _ENOUGH) if prompt.part == "tool" else behind  # the system text comes behind the tools
    of_module = isinstance(slot.evaluated.scope.node, ast.Module | ast.ClassDef) and prompt.part != "constant"
    if once and known < _ENOUGH and source.pace in ("instant", "day") and not (of_module or requests.with_tools):
        return  # each conversation has its own, and nothing that others share stands behind it
    if prompt.part == "constant" and known < _ENOUGH:
        return  # it may be what the request is about
    severity = _severity(source, once, known, prompt.followed)
    if severity is None:
        return
    if prompt.manner == "named" and severity == "error":
        severity = "warning"
    sure = slot.sure and prompt.manner == "sent" and slot.evaluated.scope is prompt.point.scope
    sure = sure and (
        prompt.part != "tool" or bool(requests.places)
    )  # it has the shape of a tool; who sends it is not here
    how = "; it is read once, so other runs have another text" if once and source.pace in ("instant", "day") else ""
    yield Defect(
        code=source.code,
        severity=severity,
        confidence="confirmed" if sure else "suspected",
        node=slot.node,
        point=slot.point,
        message=f"{source.thing} ({_shown(reader, source)}) gets into {_PLACES[prompt.part]} of line {prompt.line}{how}",
        help=_HELP[source.code],
        behind=behind,
        wrap=source.wrap,
        safe=source.sortable,
        source=source.node,
    )


def _shown(reader: Reader, source: Source) -> str:
    """``datetime.now(), line 7``."""
    text, place = ast.unparse(source.node), reader.program.place_of(source.node)
    return f"{text}, {place}" if len(text) <= _LONGEST_SOURCE else place


def _severity(source: Source, once: bool, behind: int, followed: bool) -> Severity | None:
    """How bad it is; ``None`` where nothing that is worth reusing stands behind it."""
    follows = behind >= _ENOUGH
    if source.pace == "order":
        return "warning"
    if source.pace == "instant":
        return "error" if not once else "warning" if follows else "info"
    if source.pace == "day":
        return ("info" if once else "warning") if follows else None if once else "info"
    if source.pace == "turn":
        return "warning" if follows or followed else None
    if behind < _LITTLE:
        return None
    return "warning" if source.pace == "state" and follows and not once else "info"


def _is_once(prompt: Prompt, slot: Slot, requests: Requests) -> bool:
    """The value is computed once for many requests: with the module, with an object, or before the loop that sends."""
    evaluated, sent = slot.evaluated, prompt.point
    named = prompt.manner == "named" and isinstance(sent.scope.node, ast.Module)
    if evaluated.scope is not sent.scope or sent.scope.is_init or named:
        return True
    if any(loop not in evaluated.loops for loop in sent.loops):
        return True
    loops = {id(loop) for place in requests.places.get(id(sent.scope), ()) for loop in place.loops}
    return bool(loops) and not prompt.followed and not any(id(loop) in loops for loop in sent.loops)


def _particular(prompt: Prompt, value: tuple[Text, ...]) -> Iterator[Defect]:
    """A text that begins with what belongs to one user or one task, before text that is the same for all."""
    for text in value:
        for index, piece in enumerate(text):
            if not isinstance(piece, Slot):
                continue
            words = set(re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", piece.label).lower()))
            before, behind = written(text[:index]), written(text[index + 1 :])
            if behind < max(_ENOUGH, before) or before > max(_MOST_BEFORE, behind // 8):
                break
            code = "AC106" if words & _RETRIEVED else "AC105" if words & _USER else None
            if code is None or piece.source is not None or not (piece.given or code == "AC106"):
                continue
            thing = "retrieved text" if code == "AC106" else "text about one user or task"
            yield Defect(
                code=code,
                severity="warning" if behind >= 400 else "info",
                confidence="suspected",
                node=piece.node,
                point=piece.point,
                message=f"{thing} stands before {behind} characters of {_PLACES[prompt.part]} that are the same for all"
                f" (line {prompt.line})",
                help="put the instructions first and what is particular behind them",
                behind=behind,
            )
            return
