"""Which files are linted: those that are named, and of folders whatever could hold requests, templates or sources."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from agentcache.errors import SettingsError
from agentcache.lint.command.choices import Choices
from agentcache.lint.globs import matcher, relative

STDIN = "-"
_RECORDS = (".jsonl", ".ndjson", ".har")
_LINTED = (*_RECORDS, *(f"{suffix}.gz" for suffix in _RECORDS), ".jinja", ".jinja2", ".j2", ".py")
"""Endings of what is taken from folders.  Others (.json, .txt, .md) could be anything, and are linted when they are named."""
_LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".direnv", ".eggs", "site-packages", "node_modules"),
        *("__pycache__", "__pypackages__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
        *("build", "dist", "_build"),
    }
)
"""Folders that are never walked into."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file to lint.

    Attributes:
        name: as findings say it; ``-`` is standard input.
        named: it was named, not found in a folder: it is linted even when it is excluded, and what holds no requests is an
            error.
        path: where it is read; ``None``: at its name.
    """

    name: str
    named: bool = True
    path: Path | None = None

    @property
    def is_stdin(self) -> bool:
        return self.name == STDIN and self.path is None


def inputs(choices: Choices) -> list[Input]:
    """Every file once, in the order of the command line, those of a folder by name.

    Raises:
        SettingsError: nothing to lint.
    """
    options, config = choices.options, choices.config
    names: Sequence[str] = options.files
    if not names:
        if config is None or not config.config.include:
            raise SettingsError(
                "no files: name files or folders, - for standard input, or set include in [tool.agentcache.lint] of "
                "pyproject.toml"
            )
        names = list(_included(config.config.include, choices.root))
        if not names:
            patterns = ", ".join(config.config.include)
            raise SettingsError(f"no files: {config.shown} includes {patterns}, and no file is called so")
    is_excluded = matcher(choices.exclude, choices.root)
    found: dict[object, Input] = {}
    for name in names:
        for each in _expanded(name):
            if options.force_exclude and not each.is_stdin:
                each = replace(each, named=False)
            if not each.named and is_excluded(each.name):
                continue
            key = each.name if each.is_stdin else os.path.realpath(each.name)
            if key not in found or each.named > found[key].named:
                found[key] = each
    return list(found.values())


def _expanded(name: str) -> Iterator[Input]:
    path = Path(name)
    if name in {STDIN, ""} or not path.is_dir():
        yield Input(name)
        return
    files = [file for file in _walked(path) if file.name.lower().endswith(_LINTED)]
    ignored = _ignored_by_git(path, files)
    yield from (Input(str(file), named=False) for file in files if file not in ignored)


def _walked(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _LEFT_OUT)
        yield from (Path(here, file) for file in sorted(files))


def _ignored_by_git(folder: Path, files: Sequence[Path]) -> frozenset[Path]:
    """Those that git does not look at; none where there is no git or no repository."""
    if not files:
        return frozenset()
    names = {os.path.relpath(file, folder): file for file in files}
    asked = "\0".join(names).encode("utf-8", "surrogateescape")
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "check-ignore", "-z", "--stdin"], input=asked, capture_output=True, check=False
        )
    except OSError:
        return frozenset()
    if answer.returncode != 0:  # 1: none is ignored, 128: no repository
        return frozenset()
    return frozenset(
        names[name] for name in answer.stdout.decode("utf-8", "surrogateescape").split("\0") if name in names
    )


def _included(patterns: Iterable[str], root: Path) -> Iterator[str]:
    """Files and folders below ``root``, as seen from here."""
    here = Path.cwd()
    for pattern in patterns:
        expected = f"include: got {pattern!r}, expected a pattern below {root} such as traces/*.jsonl"
        if ".." in PurePath(pattern).parts:
            raise SettingsError(f"{expected}: .. leads out of it")
        below = PurePath(pattern).as_posix()
        try:
            found = [root] if below == "." else sorted(root.glob(below))
        except (ValueError, NotImplementedError) as error:
            raise SettingsError(f"{expected}: {error}") from None
        yield from (str(relative(path, here)) for path in found)
