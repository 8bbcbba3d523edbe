"""Where a report goes, and in which form."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console

from agentcache.lint.command.choices import Choices
from agentcache.lint.outputs import console as pages
from agentcache.lint.outputs import data, github, junit, sarif
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.outputs.whole_files import written_whole
from agentcache.lint.outputs.words import visible


def console_of(out: TextIO, color: bool | None) -> Console:
    """A console that writes what it is given as it is: no markup, no emoji, nothing highlighted.

    Args:
        color: ``None``: colours where ``out`` is a terminal that has them.
    """
    return Console(
        file=out,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=True if color else None,
        no_color=False if color else None,
        color_system=None if color is False else ("standard" if color else "auto"),
    )


def escape_what_cannot_be_spelled() -> None:
    """Characters that the terminal's encoding has not are escaped, and no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def note(sentence: str) -> None:
    """One line on standard error; what names and prompts say cannot command the terminal."""
    if sys.stderr is not None:
        print(visible(sentence), file=sys.stderr)


def discard_output() -> None:
    """What is left in the buffer goes nowhere, or the interpreter would try, and complain, when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # no real file behind it
        return


def write(outcome: Outcome, choices: Choices) -> None:
    """A reader of standard output that has seen enough changes nothing about what was found.

    Raises:
        SettingsError: the file cannot be written.
        OSError: standard output cannot.
    """
    options = choices.options
    try:
        with _output(options.output_file) as out:
            if outcome.fixes is not None and options.diff:
                out.write(outcome.fixes.diff)
            else:
                _write(outcome, choices, out, color=options.color if options.output_file is None else False)
            out.flush()
    except BrokenPipeError:
        discard_output()


def _write(outcome: Outcome, choices: Choices, out: TextIO, *, color: bool | None) -> None:
    options, style = choices.options, choices.output_format
    if style == "json":
        data.write_json(outcome, out, statistics=options.statistics)
    elif style == "jsonl":
        data.write_jsonl(outcome, out, statistics=options.statistics)
    elif style == "sarif":
        sarif.write_sarif(outcome, out, statistics=options.statistics)
    elif style == "github":
        github.write_github(outcome, out)
    elif style == "junit":
        junit.write_junit(outcome, out)
    else:
        console = console_of(out, color)
        if style == "full":
            pages.write_full(outcome, console, quiet=options.quiet)
        else:
            pages.write_concise(outcome, console, quiet=options.quiet)
        if options.statistics:
            pages.write_statistics(outcome, console)
        if len(choices.page_sizes) > 1:
            pages.write_page_sizes(outcome, console)


@contextmanager
def _output(file: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file."""
    if file is None:
        yield sys.stdout
        return
    with written_whole(file, "--output-file") as out:
        yield out
