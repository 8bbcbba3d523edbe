"""``agentcache lint``.  Exit codes: 0 nothing found, 1 findings, 2 an error (a bad command line, what cannot be read)."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError
from agentcache.lint import formats, terminal
from agentcache.lint.linter import Linter, Report
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.readers import read_records
from agentcache.lint.rules import RULES, find_rule, select_rules
from agentcache.settings import default_home

_CLEAN, _FOUND, _ERROR = 0, 1, 2
_OTHER_SOURCES = {".py": "Python sources", ".jinja": "chat templates", ".j2": "chat templates", ".har": "HAR archives"}


def main(argv: list[str]) -> int:
    """Run the linter.

    Args:
        argv: the command line behind ``agentcache lint``.

    Returns:
        The exit code.
    """
    try:
        return _rule_command(argv[1:]) if argv[:1] == ["rule"] else _lint_command(_parser().parse_args(argv))
    except SystemExit as stop:  # argparse
        return stop.code if isinstance(stop.code, int) else _ERROR
    except AgentCacheError as error:
        return _fail(str(error))
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _ERROR


def _lint_command(options: argparse.Namespace) -> int:
    try:
        rules = select_rules(options.select, options.ignore)
    except ValueError as error:
        return _fail(f"--select and --ignore: {error}")
    if not options.files:
        return _fail("no files: name JSONL files of chat requests, or - for standard input")
    maker = PromptMaker(_renderer(options.tokenizer, options.template), options.page_size)
    linter = Linter(maker, rules, options.page_size)
    failed = [file for file in options.files if not _lint_file(linter, file)]
    report = _worth_reporting(linter.report(), options.min_tokens_lost)
    _write(report, options)
    if failed or any(finding.code == "AC903" for finding in report.findings):
        return _ERROR
    return _FOUND if report.findings and not options.exit_zero else _CLEAN


def _rule_command(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="agentcache lint rule", description="Explain a rule, or list all of them.")
    parser.add_argument("code", nargs="?", metavar="CODE", help="such as AC501")
    code = parser.parse_args(argv).code
    console = _console()
    if code is None:
        for rule in RULES:
            console.print(f"{rule.code}  {rule.name:<24}{rule.what}", soft_wrap=True)
        return _CLEAN
    found = find_rule(code)
    if found is None:
        return _fail(f"got {code!r}, expected one of {', '.join(rule.code for rule in RULES)}")
    terminal.write_rule(found, console)
    return _CLEAN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache lint",
        description="Find what keeps a prefix cache from reusing prompts. Exit code: 0 clean, 1 findings, 2 error.",
        epilog="agentcache lint rule [CODE] explains the rules. A file that is called rule is named as ./rule.",
    )
    parser.add_argument("files", nargs="*", metavar="FILES", help="JSONL of OpenAI chat requests; - is standard input")
    parser.add_argument(
        "--select", type=_codes, default=(), metavar="CODES", help="only rules that begin so: AC1,AC501"
    )
    parser.add_argument("--ignore", type=_codes, default=(), metavar="CODES", help="no rules that begin so")
    parser.add_argument(
        "--page-size", type=_number(1, 1024), default=16, metavar="N", help="tokens a page (%(default)s)"
    )
    parser.add_argument(
        "--tokenizer",
        default="smollm2",
        metavar="MODEL",
        help="folder or model whose tokenizer and template are used (%(default)s)",
    )
    parser.add_argument(
        "--template", type=Path, metavar="FILE", help="chat template to use instead of the tokenizer's own"
    )
    parser.add_argument("--min-tokens-lost", type=_number(0), default=0, metavar="N", help="leave out what costs less")
    formats = ("full", "concise", "json", "jsonl", "github")
    parser.add_argument("--output-format", choices=formats, default="full", help="how findings are written (full)")
    parser.add_argument("--statistics", action="store_true", help="add totals and counts by rule")
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 even when there are findings")
    return parser


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code for part in text.split(",") if (code := part.strip()))


def _number(least: int, most: int | None = None) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(
                f"got {value}, expected {least} {'or more' if most is None else f'to {most}'}"
            )
        return value

    return number


def _renderer(name: str, template: Path | None) -> ChatRenderer:
    """Tokenizer and template of a folder, or of any model that ``agentcache serve --model`` takes."""
    folder = Path(name).expanduser()
    if not (folder / "tokenizer.json").is_file():
        folder = _model_folder(name)
    source = None
    if template is not None:
        try:
            source = template.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AgentCacheError(f"--template {template}: cannot be read: {error}") from None
    # One moment for all requests, or a template's clock would tick in between.
    started = datetime.datetime.now().astimezone()
    return ChatRenderer(Tokenizer.from_folder(folder), source, clock=lambda: started)


def _model_folder(name: str) -> Path:
    try:
        from agentcache.model.hub import resolve_model

        return resolve_model(name, default_home(), progress=_note).folder
    except ImportError as error:
        raise AgentCacheError(
            f"--tokenizer {name}: finding or converting a model needs the package {error.name}: "
            "pip install '.[serve]' in the folder of agentcache's source, or name a folder that holds tokenizer.json and "
            "tokenizer_config.json"
        ) from None
    except AgentCacheError as error:  # it speaks of the server's flag
        raise AgentCacheError(str(error).replace("--model", "--tokenizer")) from None


def _lint_file(linter: Linter, file: str) -> bool:
    """Feed one file to the linter; ``False`` when it cannot be read, which has been said then."""
    if kind := _OTHER_SOURCES.get(Path(file).suffix.lower()):
        _fail(f"{file}: this version does not read {kind}, only JSONL of OpenAI chat requests")
        return False
    try:
        with _opened(file) as stream:
            linter.add_all(read_records(stream, file))
    except OSError as error:
        _fail(f"{file}: cannot be read: {error.strerror or error}")
        return False
    return True


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as stream:
        yield stream


def _worth_reporting(report: Report, least: int) -> Report:
    kept = [finding for finding in report.findings if finding.tokens_lost is None or finding.tokens_lost >= least]
    return replace(report, findings=kept)


def _write(report: Report, options: argparse.Namespace) -> None:
    statistics: bool = options.statistics
    if options.output_format == "json":
        formats.write_json(report, sys.stdout, statistics=statistics)
    elif options.output_format == "jsonl":
        formats.write_jsonl(report, sys.stdout, statistics=statistics)
    elif options.output_format == "github":
        formats.write_github(report, sys.stdout)
    else:
        console = _console()
        write = terminal.write_full if options.output_format == "full" else terminal.write_concise
        write(report, console)
        if statistics:
            terminal.write_statistics(report, console)
    sys.stdout.flush()


def _console() -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def _note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _fail(sentence: str) -> int:
    _note(f"error: {sentence}")
    return _ERROR
