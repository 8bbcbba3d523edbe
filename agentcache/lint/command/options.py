"""The command line of ``agentcache lint``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from agentcache.lint.command.flags import FlagParser
from agentcache.lint.config import FailOn, OutputFormat

_EPILOG = (
    "agentcache lint rule [CODE] explains the rules, agentcache lint template FILE_OR_MODEL says whether a chat template keeps "
    "the cache. Files of these names are named as ./rule and ./template. Defaults come from [tool.agentcache.lint] in "
    "pyproject.toml, or [lint] in agentcache.toml, of this folder or the nearest one above."
)


def parser() -> argparse.ArgumentParser:
    """Flags have no defaults here: what is not given is ``None``, and the configuration decides."""
    made = FlagParser(
        prog="agentcache lint",
        description="Find what keeps a prefix cache from reusing prompts. Exit code: 0 clean, 1 findings, 2 error.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    made.add_argument(
        "files",
        nargs="*",
        metavar="FILES",
        help="requests (JSONL, HAR, transcripts, traces, prompt files), chat templates (.jinja), Python sources, folders "
        "of them; - is standard input; none: what the configuration includes",
    )
    made.add_argument(
        "--stdin-filename",
        metavar="NAME",
        help="what standard input is called; its ending says whether it is requests, a template or a source",
    )
    _rules(made.add_argument_group("which findings"))
    _prompts(made.add_argument_group("how prompts are read"))
    _output(made.add_argument_group("output"))
    _fixes(made.add_argument_group("fixes"))
    _configuration(made.add_argument_group("configuration"))
    live = made.add_argument_group("a running server")
    live.add_argument("--live", metavar="URL", help="ask a running server for its findings instead of reading files")
    live.add_argument("--api-key", metavar="KEY", help="key of that server (default: AGENTCACHE_API_KEY)")
    return made


def _rules(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--select", type=codes, metavar="CODES", help="only rules that begin so: AC1,AC501")
    group.add_argument("--extend-select", type=codes, metavar="CODES", help="these too, such as optional rules")
    group.add_argument(
        "--ignore", type=codes, metavar="CODES", help="no rules that begin so; the longer beginning wins"
    )
    group.add_argument(
        "--per-file-ignores",
        type=_per_file,
        action="extend",
        metavar="PATTERN:CODES",
        help="no rules that begin so in files like that: 'tests/**:AC1,AC204'; repeatable",
    )
    group.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="leave out such files of folders; repeatable"
    )
    group.add_argument(
        "--force-exclude",
        action="store_true",
        help="take named files like those of folders: leave out what is excluded or holds no requests",
    )
    group.add_argument("--min-tokens-lost", type=number(0), metavar="N", help="leave out what costs less")
    group.add_argument("--baseline", type=Path, metavar="FILE", help="report only what is not in this file")
    group.add_argument(
        "--write-baseline", type=Path, metavar="FILE", help="write today's findings to this file, and exit with 0"
    )


def _prompts(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--page-size",
        type=_page_sizes,
        metavar="N[,N...]",
        help="tokens a page (16); of several the first counts for findings, and all are compared in a table",
    )
    group.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="folder or model whose tokenizer and template are used (default: the model of agentcache.toml, or smollm2)",
    )
    group.add_argument(
        "--template", type=Path, metavar="FILE", help="chat template to use instead of the tokenizer's own"
    )


def _output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-format", choices=get_args(OutputFormat), help="how findings are written (full)")
    group.add_argument("--output-file", type=Path, metavar="FILE", help="write them to this file")
    group.add_argument("--statistics", action="store_true", help="add totals and counts by rule")
    group.add_argument("--quiet", "-q", action="store_true", help="only findings and errors: no summary, no notes")
    group.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="colours (default: on terminals; NO_COLOR and FORCE_COLOR are respected)",
    )
    group.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="how far it is, on standard error (default: on terminals, when it takes longer)",
    )
    group.add_argument(
        "--fail-on",
        choices=get_args(FailOn),
        help="findings that weigh less are told, and do not make the exit code 1 (info: all do)",
    )
    group.add_argument("--exit-zero", action="store_true", help="exit with 0 even when there are findings")


def _fixes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--fix", action="store_true", help="apply the fixes that are safe, each proved by rendering again"
    )
    group.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: also those that want a look")
    group.add_argument("--diff", action="store_true", help="show what fixes would change, and change nothing")


def _configuration(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("--config", type=Path, metavar="FILE", help="take the configuration from this file")
    which.add_argument("--isolated", action="store_true", help="take no configuration from files")
    group.add_argument(
        "--show-settings",
        action="store_true",
        help="say the settings in force and where they come from, and lint nothing",
    )
    group.add_argument("--traceback", action="store_true", help="show where a fault of the linter happens")


def codes(text: str) -> tuple[str, ...]:
    """``AC1, ac501`` as codes."""
    return tuple(code.upper() for part in text.split(",") if (code := part.strip()))


def number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type for whole numbers of a range."""
    expected = f"a whole number from {least}" + ("" if most is None else f" to {most}")

    def parsed(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid value: got {text!r}, expected {expected}") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"got {value}, expected {expected}")
        return value

    return parsed


def _page_sizes(text: str) -> tuple[int, ...]:
    sizes = [number(1, 1024)(part.strip()) for part in text.split(",")]
    return tuple(dict.fromkeys(sizes))


def _per_file(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """``PATTERN:CODES``; a comma ends codes where another pattern begins, as in ``a:AC1,b:AC2``."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for part in text.split(","):
        pattern, colon, code = part.rpartition(":")
        if colon:
            found.append((pattern.strip(), codes(code)))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + codes(part))
    if not found or not all(pattern and named for pattern, named in found):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected PATTERN:CODES such as 'tests/**:AC1,AC204'")
    return found
