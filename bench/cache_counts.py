"""Where the cache's hits are counted: groups, page sizes, equal prompts at once, forks.  Counts are exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.free_engine import Answer, FreeEngine, Shape, Tally, Texts


@dataclass(frozen=True)
class Line:
    """One measured figure and the best that it could be."""

    part: str
    case: str
    figure: str
    measured: float
    optimum: float
    unit: str
    """``%``, ``tokens``, ``pages`` or ``s``."""


def hits(part: str, case: str, tally: Tally, best: Tally) -> Iterator[Line]:
    """The two lines that every sharing pattern has."""
    yield Line(part, case, "hit rate", 100 * tally.hit_rate, 100 * best.hit_rate, "%")
    yield Line(part, case, "prefilled", tally.prefilled, best.prefilled, "tokens")


def serve(engine: FreeEngine, prompts: list[list[int]], *, at_once: bool, output_tokens: int) -> list[Answer]:
    answers = []
    for prompt in prompts:
        answers.append(engine.send(prompt, output_tokens))
        if not at_once:
            engine.run()
    engine.run()
    return answers


def _when(at_once: bool) -> str:
    return "at once" if at_once else "in turn"


def groups(count: int = 8, each: int = 8, shared: int = 512, own: int = 32) -> Iterator[Line]:
    """(a) ``count`` groups of ``each`` prompts that share their first tokens.

    Of each group one prompt is computed whole and the rest share: hit rate (each - 1) * shared / (each * (shared + own)),
    which is 14 / 17 = 82.4 % for 8 prompts of 512 + 32 tokens.
    """
    saved = count * (each - 1) * shared
    total = count * each * (shared + own)
    best = Tally(total, saved, total - saved)
    for at_once in (True, False):
        texts = Texts()
        heads = [texts(shared) for _ in range(count)]
        prompts = [head + texts(own) for _ in range(each) for head in heads]
        answers = serve(FreeEngine(Shape(num_pages=4096)), prompts, at_once=at_once, output_tokens=8)
        case = f"{count} groups x {each} prompts, {_when(at_once)}"
        yield from hits("a", case, Tally.of(answers), best)


def page_sizes(shared: int = 341, own: int = 171, count: int = 8) -> Iterator[Line]:
    """(c) A prefix that ends inside a page, with and without reuse of the partly equal page."""
    total = count * (shared + own)
    saved = (count - 1) * shared
    best = Tally(total, saved, total - saved)
    for size in (16, 32, 64, 256, 512):
        for tails in (True, False):
            for at_once in (False, True):
                texts = Texts()
                head = texts(shared)
                prompts = [head + texts(own) for _ in range(count)]
                engine = FreeEngine(Shape(num_pages=65_536 // size, page_size=size, tails=tails))
                answers = serve(engine, prompts, at_once=at_once, output_tokens=8)
                case = f"page size {size}, partial reuse {'on' if tails else 'off'}, {_when(at_once)}"
                yield from hits("c", case, Tally.of(answers), best)


def equal_prompts(count: int = 16) -> Iterator[Line]:
    """(d) Equal cold prompts at once: one prefill, and one token redone by each of the others.

    1,000 tokens end inside a page; what stands behind the last full page is not waited for.
    """
    for length in (1024, 1000):
        prompt = Texts()(length)
        answers = serve(FreeEngine(Shape(num_pages=4096)), [prompt] * count, at_once=True, output_tokens=32)
        best = Tally(count * length, (count - 1) * (length - 1), length + count - 1)
        yield from hits("d", f"{count} prompts of {length:,} tokens", Tally.of(answers), best)


def forks(own: int = 64, size: int = 16) -> Iterator[Line]:
    """(e) A trunk that goes on in 1 to 8 ways: as ``n`` of one request, and as branches sent after the trunk."""
    for trunk in (1024, 1030):
        for ways in (1, 2, 4, 8):
            yield from _fork_by_n(trunk, ways, own, size)
    for trunk in (1024, 1030):
        for ways in (1, 2, 4, 8):
            yield from _fork_by_branches(trunk, ways, own, size)


def _fork_by_n(trunk: int, ways: int, own: int, size: int) -> Iterator[Line]:
    engine = FreeEngine(Shape(num_pages=4096, page_size=size))
    answer = engine.send(Texts()(trunk), own + 1, n=ways)  # the last drawn token has no keys and values
    engine.run()
    computed = sum(report.computed_tokens for report in answer.reports)
    case = f"trunk of {trunk:,}, n = {ways}"
    yield Line("e", case, "computed", computed, trunk + ways * own, "tokens")
    yield Line("e", case, "pages", engine.peak_live, _fork_pages(trunk, ways, own, size), "pages")


def _fork_by_branches(trunk: int, ways: int, own: int, size: int) -> Iterator[Line]:
    """Each branch brings ``own / 2`` tokens and draws as many."""
    texts = Texts()
    head = texts(trunk)
    engine = FreeEngine(Shape(num_pages=4096, page_size=size))
    engine.send(head)
    engine.run()
    branches = [head + texts(own // 2) for _ in range(ways)]
    engine.peak_live = 0
    answers = serve(engine, branches, at_once=True, output_tokens=own // 2 + 1)
    computed = trunk + sum(report.computed_tokens for answer in answers for report in answer.reports)
    case = f"trunk of {trunk:,}, {ways} branch{'es' * (ways > 1)} sent later"
    yield Line("e", case, "computed", computed, trunk + ways * own, "tokens")
    yield Line("e", case, "pages", engine.peak_live, _fork_pages(trunk, ways, own, size), "pages")


def _fork_pages(trunk: int, ways: int, own: int, size: int) -> int:
    """Full pages of the trunk once, the rest for each way."""
    return trunk // size + ways * -(-(trunk % size + own) // size)


def restart(count: int = 8, shared: int = 512, own: int = 256) -> Iterator[Line]:
    """(g) What the disk gives back to a new process: the same prompts again, and others with the same beginning."""
    for disk in (True, False):
        for same in (True, False):
            texts = Texts()
            head = texts(shared)
            first = [head + texts(own) for _ in range(count)]
            again = first if same else [head + texts(own) for _ in range(count)]
            with TemporaryDirectory() as folder:
                shape = Shape(num_pages=4096, disk_dir=Path(folder) if disk else None)
                for prompts in (first, again):
                    engine = FreeEngine(shape)
                    answers = serve(engine, prompts, at_once=True, output_tokens=8)
                    engine.core.save(timeout_s=60)
            total = count * (shared + own)
            saved = count * ((shared + own - 1) if same else shared)
            case = f"{'the same prompts' if same else 'others that begin alike'}, disk {'warm' if disk else 'off'}"
            yield from hits("g", case, Tally.of(answers), Tally(total, saved, total - saved))
