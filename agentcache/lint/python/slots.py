"""What varies in a prompt: AC101 to AC106, and AC203 inside texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agentcache.lint.finding import Severity
from agentcache.lint.python.places import Point
from agentcache.lint.python.prompts import Prompt
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.report import Defect
from agentcache.lint.python.sources import Source
from agentcache.lint.python.texts import Slot, Text, written

_ENOUGH = 64
"""Characters of fixed text, about a page of tokens, that make it worth asking what stands before them."""
_MOST_BEFORE = 100
"""More text than this in front of a slot, and it does not stand at the beginning."""

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

_PLACES = {
    "system": "the system text",
    "tool": "a tool's description",
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


def defects_of(reader: Reader, prompt: Prompt, sends_in: dict[int, list[Point]]) -> Iterator[Defect]:
    """What is wrong with the text of a prompt.

    Args:
        sends_in: scope (by ``id``) -> where it calls a model.
    """
    value = reader.prompt(prompt.node, prompt.point)
    longest = max((written(text) for text in value), default=0)
    if prompt.manner == "named" and longest < 20:
        return
    best: dict[tuple[int, int], tuple[int, Slot]] = {}
    for text in value:
        for index, piece in enumerate(text):
            if isinstance(piece, Slot) and piece.source is not None:
                behind = written(text[index + 1 :])
                key = (id(piece.node), id(piece.source.node))
                if key not in best or best[key][0] < behind:
                    best[key] = (behind, piece)
    for behind, slot in best.values():
        yield from _varying(prompt, slot, behind, sends_in)
    if prompt.part == "system":
        yield from _particular(prompt, value)


def _varying(prompt: Prompt, slot: Slot, behind: int, sends_in: dict[int, list[Point]]) -> Iterator[Defect]:
    source = slot.source
    if source is None:
        return
    once = prompt.manner == "kept" or _is_once(prompt, slot, sends_in)
    if prompt.part == "earlier" and (once or source.pace not in ("instant", "order")):
        return
    if prompt.part == "constant" and behind < _ENOUGH and source.pace != "order":
        return
    severity = _severity(source, once, behind, prompt.followed)
    if severity is None:
        return
    if prompt.manner == "named" and severity == "error":
        severity = "warning"
    sure = slot.sure and prompt.manner == "sent" and slot.evaluated.scope is prompt.point.scope
    from_line = source.node.lineno
    how = "; it is read once, so other runs have another text" if once and source.pace in ("instant", "day") else ""
    yield Defect(
        code=source.code,
        severity=severity,
        confidence="confirmed" if sure else "suspected",
        node=slot.node,
        point=slot.point,
        message=f"{source.thing} (line {from_line}) gets into {_PLACES[prompt.part]} of line {prompt.line}{how}",
        help=_HELP[source.code],
        behind=behind,
        wrap=source.wrap,
        safe=source.sortable,
    )


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
    if not follows:
        return None
    return "warning" if source.pace == "state" and not once else "info"


def _is_once(prompt: Prompt, slot: Slot, sends_in: dict[int, list[Point]]) -> bool:
    """The value is computed once for many requests: with the module, with an object, or before the loop that sends."""
    evaluated, sent = slot.evaluated, prompt.point
    named = prompt.manner == "named" and isinstance(sent.scope.node, ast.Module)
    if evaluated.scope is not sent.scope or sent.scope.is_init or named:
        return True
    if any(loop not in evaluated.loops for loop in sent.loops):
        return True
    loops = {id(loop) for place in sends_in.get(id(sent.scope), ()) for loop in place.loops}
    return bool(loops) and not any(id(loop) in loops for loop in sent.loops)


def _particular(prompt: Prompt, value: tuple[Text, ...]) -> Iterator[Defect]:
    """A text that begins with what belongs to one user or one task, before text that is the same for all."""
    for text in value:
        for index, piece in enumerate(text):
            if not isinstance(piece, Slot):
                continue
            words = set(re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", piece.label).lower()))
            before, behind = written(text[:index]), written(text[index + 1 :])
            if before > _MOST_BEFORE or behind < max(_ENOUGH, before):
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
