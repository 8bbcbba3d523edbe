"""What is done before there is an engine, by ``agentcache serve`` and by clients in one process with theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape

from agentcache.errors import AgentCacheError

T = TypeVar("T")
Progress = Callable[[str], None]


@contextmanager
def serving_packages(what: str) -> Iterator[None]:
    """Around imports that need the extra ``serve``.

    Args:
        what: needs them.

    Raises:
        AgentCacheError: one of them is not installed; it says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise AgentCacheError(
            f"{what} needs the packages of the extra 'serve', and {error.name} is not installed: "
            "pip install '.[serve]' in the folder of agentcache's source"
        ) from None


@contextmanager
def calm_openmp() -> Iterator[None]:
    """Around the first import of torch, whose OpenMP reads it then; the environment is left as it was.

    Threads that spin while they wait take the core that the HTTP side or a neighbour needs, and steps become several times
    longer; those that sleep at once are woken hundreds of times a step.  GNU's OpenMP can do what is right: wait awake for some
    microseconds, the pause between two products, and then sleep.
    """
    calm = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
    if "OMP_WAIT_POLICY" in os.environ:
        calm = {}
    added = {name: value for name, value in calm.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def shown(work: Callable[[Progress | None], T], progress: Progress | bool | None, what: str | None = None) -> T:
    """What ``work`` returns; what it reports meanwhile goes where ``progress`` says.

    Args:
        progress: a function, or ``True``: to standard error, as a status line in a terminal and a line each where there is
            none; ``False``: nowhere; ``None``: to a terminal only.
        what: is done, said at once wherever anything is said on standard error: work may report nothing for a long time.
    """
    if callable(progress):
        return work(progress)
    console = Console(stderr=True, soft_wrap=True)
    if progress is False or (progress is None and not console.is_terminal):
        return work(None)
    if not console.is_terminal:
        if what is not None:
            console.print(what, markup=False, highlight=False)
        return work(lambda text: console.print(text, markup=False, highlight=False))
    with console.status("loading" if what is None else escape(what)) as status:
        return work(lambda text: status.update(escape(text)))
