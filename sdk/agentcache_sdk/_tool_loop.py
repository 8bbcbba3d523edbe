"""The loop of an agent: ask the model, run the tools that it calls, ask again.  No I/O.

::

    run(text) -> turn -> calls -> results -> turn -> calls -> results -> turn without calls: the answer
                 |________________________________________________________|
                                     at most max_turns turns
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Union

from pydantic_core import to_jsonable_python

from agentcache_sdk._core import SessionCore
from agentcache_sdk._fields import check_fields
from agentcache_sdk._flights import TurnInput
from agentcache_sdk.tools import BadArguments, bound_arguments
from agentcache_sdk.types import ToolCall, Turn

BeforeTurn = Callable[[int], Any]
OnTurn = Callable[[Turn], Any]
OnCall = Callable[[ToolCall], Any]
OnResult = Callable[["ToolRun"], Any]
OnDelta = Callable[[str], Any]
_NAMED = (
    "max_turns", "volatile", "timeout", "on_turn", "on_call", "on_result", "on_delta", "on_error", "before_turn", "extra_body",
)  # fmt: skip
QUICK_S = 0.1
"""A tool that is known to be faster needs no lease: its session's pages are the newest in the cache anyway."""


@dataclass(frozen=True)
class ToolRun:
    """One call and what came of it.

    Attributes:
        content: what the model is told, as text.
        error: what the tool raised, or what was wrong with the call; ``None`` when it returned.
    """

    call: ToolCall
    content: str
    error: Exception | None = None


@dataclass(frozen=True)
class RunResult:
    """What ``session.run`` came to.

    Attributes:
        turns: of this run, in order; there is at least one.
        tool_runs: of this run, in order.
        stopped: ``answer``: the model called no tool any more; ``max_turns``: it would have gone on, and its last calls
            are open: ``run()`` without a text goes on with them.
    """

    turns: tuple[Turn, ...]
    tool_runs: tuple[ToolRun, ...]
    stopped: Literal["answer", "max_turns"]

    @property
    def turn(self) -> Turn:
        """The last turn."""
        return self.turns[-1]

    @property
    def text(self) -> str:
        """What the model said last."""
        return self.turn.text


@dataclass(frozen=True)
class Callbacks:
    """What a run tells its caller; each may be ``None``.

    Attributes:
        before_turn: before a turn, with its number in this run.  The mapping that it returns, if any, is added to the
            turn's sampling.
        on_call: before a tool runs.  What it returns, unless ``None``, is told to the model in place of running it.
    """

    on_turn: OnTurn | None = None
    on_call: OnCall | None = None
    on_result: OnResult | None = None
    on_delta: OnDelta | None = None
    before_turn: BeforeTurn | None = None


@dataclass(frozen=True)
class RunInput:
    """The arguments of ``run``."""

    first: TurnInput
    max_turns: int
    on_error: Literal["tell", "raise"]

    def checked(self) -> RunInput:
        """
        Raises:
            TypeError: a misspelt argument.
            ValueError: no such number of turns, or no such way with errors.
        """
        check_fields(self.first.sampling, _NAMED)
        if self.max_turns < 1:
            raise ValueError(f"max_turns: got {self.max_turns}, expected at least 1")
        if self.on_error not in ("tell", "raise"):
            raise ValueError(f'on_error: got {self.on_error!r}, expected "tell" or "raise"')
        return self


@dataclass(frozen=True)
class AskModel:
    """Run one turn, the run's ``number``-th from 0; answered by the turn."""

    given: TurnInput
    number: int

    def sampled(self, extra: Mapping[str, Any] | None) -> TurnInput:
        """With what this turn alone is sampled by.

        Raises:
            TypeError: ``extra`` is no mapping.
        """
        if extra is None:
            return self.given
        if not isinstance(extra, Mapping):
            raise TypeError(f"before_turn: got {extra!r}, expected a mapping of sampling fields, or None")
        sampling = {**self.given.sampling, **extra}
        max_tokens = sampling.pop("max_tokens", self.given.max_tokens)
        return replace(self.given, max_tokens=max_tokens, sampling=sampling)


@dataclass(frozen=True)
class RunTools:
    """Run tools, together if that can be; answered by their runs, in the same order.

    Attributes:
        lease: name and expected seconds of what keeps the session waiting, where that is worth a lease.
    """

    calls: tuple[ToolCall, ...]
    lease: tuple[str, float | None] | None


Loop = Generator[Union[AskModel, RunTools], Any, RunResult]  # noqa: UP007  evaluated at run time on Python 3.10


def loop(core: SessionCore, given: RunInput) -> Loop:
    """The steps of a run, each answered by what it came to."""
    turns: list[Turn] = []
    runs: list[ToolRun] = []
    following = TurnInput(None, given.first.max_tokens, None, given.first.sampling, given.first.timeout)
    ask = given.first
    open_calls = core.open_tool_calls()
    if ask.text is None and open_calls:  # left by a run that reached its last turn, or that a tool ended
        runs += yield from _tools(core, open_calls, given.on_error)
    while True:
        turn: Turn = yield AskModel(ask, len(turns))
        turns.append(turn)
        if not turn.tool_calls:
            return RunResult(tuple(turns), tuple(runs), "answer")
        if len(turns) == given.max_turns:
            return RunResult(tuple(turns), tuple(runs), "max_turns")
        runs += yield from _tools(core, tuple(turn.tool_calls), given.on_error)
        ask = following


def _tools(
    core: SessionCore, calls: tuple[ToolCall, ...], on_error: str
) -> Generator[RunTools, Any, tuple[ToolRun, ...]]:
    runs: tuple[ToolRun, ...] = yield RunTools(calls, _lease(core, calls))
    for run in runs:
        # A tool that failed for good leaves its call open: whoever catches the error can answer it, or go on by run().
        if run.error is None or on_error == "tell" or isinstance(run.error, BadArguments):
            core.tool_result(run.call.id, run.content)
    if on_error == "raise":
        for run in runs:
            if run.error is not None and not isinstance(run.error, BadArguments):
                raise run.error
    return runs


def _lease(core: SessionCore, calls: tuple[ToolCall, ...]) -> tuple[str, float | None] | None:
    names = list(dict.fromkeys(call.name for call in calls))
    usual = [core.usual_wait(name) for name in names]
    known = [seconds for seconds in usual if seconds is not None]
    if len(known) == len(names) and max(known, default=0.0) < QUICK_S:
        return None
    return ", ".join(names)[:200], max(known) if len(known) == len(names) else None


@dataclass
class Job:
    """One call about to run.

    Attributes:
        function: what runs, with ``arguments``; ``None`` when there is nothing to run, and ``outcome`` says why.
    """

    call: ToolCall
    function: Callable[..., Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    outcome: ToolRun | None = None


def job_of(core: SessionCore, call: ToolCall) -> Job:
    """What a call runs; a call that cannot run is an outcome of its own, which the model is told."""
    function = core.functions.get(call.name)
    if function is None:
        known = ", ".join(core.functions) or "none"
        wrong = BadArguments(f"there is no function {call.name!r}; there are: {known}")
        return Job(call, outcome=failed(call, wrong))
    try:
        return Job(call, function, bound_arguments(function, call.arguments))
    except BadArguments as wrong:
        return Job(call, outcome=failed(call, wrong))


def finished(call: ToolCall, value: Any) -> ToolRun:
    """What a tool returned; what is no text is written as JSON, models, dates, paths and sets as pydantic writes them."""
    if isinstance(value, str):
        return ToolRun(call, value)
    try:
        return ToolRun(call, json.dumps(to_jsonable_python(value), ensure_ascii=False))
    except (TypeError, ValueError) as error:
        return failed(call, TypeError(f"the tool {call.name} returned what JSON cannot carry: {error}"))


def failed(call: ToolCall, error: Exception) -> ToolRun:
    kind = "" if isinstance(error, BadArguments) else f"{type(error).__name__}: "
    return ToolRun(call, f"error: {kind}{error}", error)
