"""``agentcache lint template FILE_OR_MODEL``.  Exit codes: 0 it keeps the cache, 1 it does not, 2 an error."""

from __future__ import annotations

import argparse
import os
import sys

from rich.console import Console

from agentcache.errors import AgentCacheError
from agentcache.lint.outputs.data import dumps
from agentcache.lint.templates import table
from agentcache.lint.templates.check import check_template
from agentcache.lint.templates.report import TemplateReport
from agentcache.lint.templates.sources import DEFAULT_TOKENIZER, find_subject

_KEEPS, _BREAKS, _ERROR = 0, 1, 2


def template_command(argv: list[str]) -> int:
    """Run the check.

    Args:
        argv: the command line behind ``agentcache lint template``.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(argv)
        report = check_template(find_subject(options.template, options.tokenizer, _note))
        _write(report, options.output_format)
    except SystemExit as stop:  # argparse
        return stop.code if isinstance(stop.code, int) else _ERROR
    except AgentCacheError as error:
        _note(f"error: {error}")
        return _ERROR
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _ERROR
    return _KEEPS if report.keeps or options.exit_zero else _BREAKS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache lint template",
        description="Does this chat template keep the cache? Conversations of every shape are rendered turn by turn, and "
        "each turn is compared with the next.",
    )
    parser.add_argument(
        "template",
        metavar="FILE_OR_MODEL",
        help="a .jinja file, a model's folder or name, or a tokenizer_config.json",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help=f"model whose tokenizer counts (default: the template's own, or {DEFAULT_TOKENIZER})",
    )
    parser.add_argument("--output-format", choices=("full", "concise", "json"), default="full", help="(%(default)s)")
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 even when it does not keep the cache")
    return parser


def _write(report: TemplateReport, output_format: str) -> None:
    if output_format == "json":
        print(dumps(table.as_data(report), sys.stdout, indent=2))
    else:
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        (table.write_full if output_format == "full" else table.write_concise)(report, console)
    sys.stdout.flush()


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)
