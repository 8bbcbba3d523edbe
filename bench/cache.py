"""What the prefix cache saves, counted, and what it costs, timed.

    python bench/cache.py                     everything; a minute or two, most of it part b
    python bench/cache.py --parts acdefg      the exact counts alone; seconds, no torch
    python bench/cache.py --parts i           four designs of the index
    python bench/cache.py --json              one JSON line instead of tables

Every figure stands beside the best that it could be.  Counts come from the real engine core, scheduler and cache on a model
that costs nothing, and are the same on every machine; times are medians and are not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agentcache.errors import AgentCacheError
from bench.cache_agents import agents
from bench.cache_counts import Line, equal_prompts, forks, groups, page_sizes, restart
from bench.index_compare import NEW_PAGES, PAGE_SIZE, Timing, compare
from bench.index_designs import DESIGNS

COUNTS: dict[str, tuple[str, Callable[[], Iterator[Line]]]] = {
    "a": ("8 groups x 8 prompts of 544 tokens, of which 512 are the group's", groups),
    "c": ("8 prompts of 512 tokens, of which 341 are shared", page_sizes),
    "d": ("16 equal prompts at once", equal_prompts),
    "e": ("a trunk goes on in several ways, 64 tokens each", forks),
    "f": ("8 agents x 8 turns with tool pauses", agents),
    "g": ("8 prompts of 768 tokens, 512 shared, after a restart", restart),
}
PARTS = "abcdefgi"


def overhead_lines(args: argparse.Namespace) -> Iterator[Line]:
    from bench.cache_overhead import OverheadSpec, overhead  # torch

    spec = OverheadSpec(args.model, args.threads, args.rounds, args.prompts, args.prompt_tokens, args.output_tokens)
    return overhead(spec)


def collect(args: argparse.Namespace) -> Iterator[tuple[str, list[Line]]]:
    """Title and lines of each part that was asked for."""
    for part in PARTS:
        if part not in args.parts:
            continue
        if part in COUNTS:
            title, lines = COUNTS[part]
            yield f"({part}) {title}", list(lines())
        elif part == "b":
            yield "(b) nothing shared: what the cache costs", list(overhead_lines(args))


def timings(args: argparse.Namespace) -> list[Timing]:
    if "i" not in args.parts:
        return []
    long = [size for size in args.index_pages if size >= 6250]
    return [*compare(args.index_pages, prompt_pages=64), *compare(long[-1:], prompt_pages=6250)]


def lines_table(title: str, lines: list[Line]) -> Table:
    """One row a case, or one row a figure where there is one case."""
    figures = list(dict.fromkeys(line.figure for line in lines))
    cases = list(dict.fromkeys(line.case for line in lines))
    cells = {(line.case, line.figure): _beside(line) for line in lines}
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    if len(cases) == 1:
        table.add_column(cases[0])
        table.add_column("measured / best", justify="right")
        for figure in figures:
            table.add_row(figure, cells[cases[0], figure])
        return table
    table.add_column("case")
    for figure in figures:
        table.add_column(f"{figure} / best", justify="right")
    for case in cases:
        table.add_row(case, *(cells[case, figure] for figure in figures))
    return table


def _beside(line: Line) -> str:
    form = ",.0f" if line.unit in {"tokens", "pages"} else ".2f"
    unit = f" {line.unit}" if line.unit in {"%", "s"} else ""
    text = f"{line.measured:{form}} / {line.optimum:{form}}{unit}"
    return text if line.unit == "s" or line.measured == line.optimum else f"[yellow]{text}[/]"


def timings_table(rows: Iterable[Timing]) -> Table:
    title = f"(i) index designs, {PAGE_SIZE} tokens a page, medians in µs"
    table = Table("pages", "prompt", "design", title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("cold", "lookup", "pin", "publish", "evict", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        times = (row.lookup_cold_us, row.lookup_us, row.pin_us, row.publish_us, row.evict_us, row.lost)
        cells = (f"{time:,.0f}" if time >= 100 else f"{time:.1f}" for time in times)
        last = row.design == DESIGNS[-1].name
        table.add_row(f"{row.pages:,}", f"{row.prompt_pages:,}", row.design, *cells, end_section=last)
    table.caption = (
        f"cold: lookup of a prompt that is hashed for the first time; publish: {NEW_PAGES} new pages; "
        "lost: pages that left the index for each page asked of evict"
    )
    return table


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the prefix cache saves, and what it costs.")
    parser.add_argument("--parts", default=PARTS, help="which of %(default)s; i compares index designs")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of tables")
    parser.add_argument(
        "--index-pages",
        type=int,
        nargs="+",
        default=[100, 1_000, 10_000, 100_000],
        metavar="N",
        help="part i: index sizes; default: %(default)s",
    )
    group = parser.add_argument_group("part b")
    group.add_argument("--model", default="tiny", help="tiny (random weights), or as for agentcache serve")
    group.add_argument("--threads", type=int, help="of torch; its own choice by default")
    group.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    group.add_argument("--prompts", type=int, default=32, help="default: %(default)s")
    group.add_argument("--prompt-tokens", type=int, default=512, help="default: %(default)s")
    group.add_argument("--output-tokens", type=int, default=32, help="default: %(default)s")
    args = parser.parse_args(argv)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"--parts: got {''.join(sorted(unknown))!r}, expected some of {PARTS}")
    if min(args.index_pages) < 16:
        parser.error(f"--index-pages: got {min(args.index_pages)}, expected at least 16")
    return args


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for a bad command line or a model that cannot be loaded."""
    args = parse(argv)
    console = Console()
    lines: list[Line] = []
    try:
        for title, part in collect(args):
            lines += part
            if not args.json:
                console.print(lines_table(title, part))
    except AgentCacheError as error:
        Console(stderr=True).print(f"bench/cache.py: {error}", style="red", markup=False, highlight=False)
        return 2
    rows = timings(args)
    if args.json:
        print(json.dumps({"lines": [asdict(line) for line in lines], "designs": [asdict(row) for row in rows]}))
    elif rows:
        console.print(timings_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
