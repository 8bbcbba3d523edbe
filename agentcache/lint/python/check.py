"""The check of one Python source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agentcache.lint.finding import Finding
from agentcache.lint.python.history import Histories
from agentcache.lint.python.module import index_module, keyword_of, last_word
from agentcache.lint.python.modules import ModuleFinder, is_worth_reading, parsed
from agentcache.lint.python.places import Point
from agentcache.lint.python.program import Program
from agentcache.lint.python.prompts import prompts_of
from agentcache.lint.python.reading import Reader
from agentcache.lint.python.replays import replay_defects
from agentcache.lint.python.report import Defect, Source
from agentcache.lint.python.sends import sends_of, turns_of
from agentcache.lint.python.settings import setting_defects
from agentcache.lint.python.slots import Requests, defects_of

_BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


def check_python(source: str, file: str, modules: ModuleFinder | None = None) -> list[Finding]:
    """What in a Python source will keep a prefix cache from reusing the prompts that it sends.

    Nothing is imported or run.  The source is parsed, and what varies (clocks, fresh ids, the machine, the order of sets) is
    followed into the texts that requests share, also out of the modules of the same project that the source imports; what a
    program does to messages that it has sent before is looked at as well.  Where the check is not sure, it says nothing.

    Args:
        file: what findings call it, and, if it exists, where imports begin.
        modules: keeps what was parsed for the next file of a project, and knows which of them are checked too; a fresh one
            where it is not given.

    Returns:
        findings in the order of the source, each at a line and a column; of a source that cannot be parsed, one AC903.
    """
    text = source.removeprefix(_BYTE_ORDER_MARK)
    report = Source(text, file)
    try:
        tree = parsed(text)
    except SyntaxError as error:
        return [report.unreadable(error.lineno or 1, error.msg)]
    except (ValueError, RecursionError, MemoryError) as error:
        return [report.unreadable(1, str(error) or type(error).__name__)]
    if not is_worth_reading(text):
        return []
    try:
        module = index_module(tree)
        module.path = _path_of(file)
        finder = None if module.path is None else modules or ModuleFinder()
        findings = [report.finding(defect) for defect in _distinct(_own_defects(Program(module, finder)))]
    except RecursionError:
        return []  # an expression nested deeper than any that people write; it says nothing about prompts
    shift = len(source) - len(text)
    return sorted((_shifted(finding, shift) for finding in findings), key=_order)


def _path_of(file: str) -> Path | None:
    """``None``: the text is not that of a file that others can be beside."""
    try:
        path = Path(file).absolute()
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def _own_defects(program: Program) -> Iterator[Defect]:
    """Those that no other file which is checked too tells already."""
    told: set[int] | None = None
    for defect in _defects(program):
        if defect.source is not None and program.home_of(defect.source) is not program.module:
            told = _told_elsewhere(program) if told is None else told
            if id(defect.source) in told:
                continue
        yield defect


def _told_elsewhere(program: Program) -> set[int]:
    """What varies, by ``id``, in prompts of the other files."""
    return {
        id(defect.source)
        for module in program.linted()
        if module.worth_reading
        for defect in _defects(program.beginning_at(module))
        if defect.source is not None
    }


def _defects(program: Program) -> Iterator[Defect]:
    """The more telling ones first."""
    module = program.module
    reader = Reader(module, program)
    sends = list(sends_of(module))
    sends_in: dict[int, list[Point]] = {}
    for send in sends:
        sends_in.setdefault(id(send.point.scope), []).append(send.point)
    tools = any("tools" in send.options for send in sends)
    agents = any(keyword_of(call, "tools") and last_word(call.func).endswith("Agent") for call, _ in module.calls)
    requests = Requests(sends_in, with_tools=tools or agents)
    for prompt in prompts_of(module, reader.names):
        yield from defects_of(reader, prompt, requests)
    turns = list(turns_of(module, reader.names, sends))
    yield from setting_defects(reader, sends, turns)
    yield from replay_defects(reader)
    yield from Histories(reader, sends, turns).defects()


def _distinct(defects: Iterable[Defect]) -> Iterator[Defect]:
    """One for each place; a statement that puts a time into an old message is not said to edit it as well."""
    nodes: set[int] = set()
    statements: dict[int, str] = {}
    for defect in defects:
        if id(defect.node) in nodes:
            continue
        earlier = statements.setdefault(id(defect.point), defect.code)
        if defect.code.startswith("AC4") and earlier != defect.code:
            continue
        nodes.add(id(defect.node))
        yield defect


def _shifted(finding: Finding, shift: int) -> Finding:
    """Offsets of edits count the byte order mark that the parser does not want to see."""
    if not shift or not finding.fix.edits:
        return finding
    edits = tuple(
        edit.model_copy(update={"start": edit.start + shift, "end": edit.end + shift}) for edit in finding.fix.edits
    )
    return finding.model_copy(update={"fix": finding.fix.model_copy(update={"edits": edits})})


def _order(finding: Finding) -> tuple[int, int, str]:
    return finding.location.record or 0, finding.location.char or 0, finding.code
