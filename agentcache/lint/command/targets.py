"""Nothing that is read is written over by what is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcache.errors import SettingsError
from agentcache.lint.baseline import Baseline
from agentcache.lint.command.choices import Choices
from agentcache.lint.command.files import Input
from agentcache.lint.outputs.whole_files import check_writable, is_standard_output


def check_targets(choices: Choices, files: Sequence[Input]) -> None:
    """Say before the work what ``--output-file`` and ``--write-baseline`` must not, or cannot, write.

    Raises:
        SettingsError: the name is that of a file that is read, of something that is no baseline, or of no place at all.
    """
    options = choices.options
    for flag, file in (("--output-file", options.output_file), ("--write-baseline", options.write_baseline)):
        check_writable(file, flag)
        if file is None or not os.path.isfile(file) or is_standard_output(file):
            continue
        for path, what in _read(choices, files):
            if _same(file, path):
                raise SettingsError(f"{flag} {file}: got {what}, expected the name of a file that nothing is read from")
    written = options.write_baseline
    if (
        written is not None
        and os.path.isfile(written)
        and not (is_standard_output(written) or _may_be_baseline(written))
    ):
        raise SettingsError(
            f"--write-baseline {written}: got a file that is no baseline, expected a new name or an old baseline"
        )
    if written is not None and options.output_file is not None and _same(written, options.output_file):
        raise SettingsError(f"--output-file {written}: got the file of --write-baseline, expected another one")


def _read(choices: Choices, files: Sequence[Input]) -> Iterator[tuple[Path, str]]:
    for each in files:
        path = each.path or Path(each.name)
        if not each.is_stdin and (each.named or not _is_report(path)):
            yield path, "a file that is linted"
    if choices.config is not None:
        yield choices.config.path, "the configuration"
    if choices.template is not None:
        yield choices.template, "the template"
    if choices.baseline is not None and choices.options.write_baseline is None:
        yield choices.baseline, "the baseline"


def _may_be_baseline(file: Path) -> bool:
    return not file.stat().st_size or Baseline.is_one(file)


def _is_report(path: Path) -> bool:
    """Whether a run wrote it in JSON lines; the next one finds it in the folder, and leaves it out."""
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)
        value = json.loads(line) if line else {"statistics": {}}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (value.keys() == {"statistics"} or {"code", "tokens_lost"} <= value.keys())


def _same(one: Path, other: Path) -> bool:
    """Whether both are one file, by whatever names."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
