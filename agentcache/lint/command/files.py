"""Which files are linted: those that are named, and of folders whatever could hold requests, templates or sources."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from agentcache.errors import SettingsError
from agentcache.lint.command.choices import Choices
from agentcache.lint.globs import matcher, relative
from agentcache.lint.outputs.words import count

STDIN = "-"
_RECORDS = (".jsonl", ".ndjson", ".har")
_LINTED = (*_RECORDS, *(f"{suffix}.gz" for suffix in _RECORDS), ".jinja", ".jinja2", ".j2", ".py")
"""Endings of what is taken from folders.  Others (.json, .txt, .md) could be anything, and are linted when they are named."""
_WHEN_NAMED = (".json", ".txt", ".md", ".markdown", ".prompt")
"""Endings of what could be requests or prompts."""
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
        name: as findings say it; ``-`` is standard input without a name.
        named: it was named, not found in a folder: it is linted even when it is excluded, and what holds no requests is an
            error.
        path: where it is read; ``None``: at its name.
        is_stdin: it is read from standard input.
    """

    name: str
    named: bool = True
    path: Path | None = None
    is_stdin: bool = False


@dataclass(frozen=True)
class Inputs:
    """
    Attributes:
        files: every file once, in the order of the command line, those of a folder by name.
        failed: folders that cannot be read, and why.
        notes: why of some folders nothing is linted.
    """

    files: list[Input] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inputs(choices: Choices) -> Inputs:
    """What the command line names, or else what the configuration includes.

    Raises:
        SettingsError: nothing to lint.
    """
    options = choices.options
    is_excluded = matcher(choices.exclude, choices.root)
    found: dict[object, Input] = {}
    failed: list[tuple[str, str]] = []
    notes: list[str] = []
    for name in _names(choices):
        if not name:
            raise SettingsError("FILES: got an empty name, expected names of files or folders")
        if name == STDIN:
            each = Input(options.stdin_filename or STDIN, is_stdin=True)
            named = options.stdin_filename is None or not options.force_exclude
            expanded = [replace(each, named=named)]
        elif os.path.isdir(name):  # which takes names of any length
            folder = _Folder(Path(name), is_excluded)
            expanded, failed = folder.inputs(), failed + folder.failed
            notes += [] if expanded or folder.failed else [folder.why_nothing()]
        else:
            expanded = [Input(name, named=not options.force_exclude)]
        for each in expanded:
            if not each.named and is_excluded(each.name):
                continue
            key = STDIN if each.is_stdin else os.path.realpath(each.name)
            if key not in found or each.named > found[key].named:
                found[key] = each
    return Inputs(list(found.values()), failed, notes)


def _names(choices: Choices) -> Sequence[str]:
    options, config = choices.options, choices.config
    if options.stdin_filename is not None:
        if options.files not in ([], [STDIN]):
            raise SettingsError(f"--stdin-filename: got {' '.join(options.files)!r} beside it, expected - or nothing")
        if options.fix:
            raise SettingsError("--fix writes files: got standard input (--stdin-filename), expected --diff")
        return [STDIN]
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
    return names


class _Folder:
    """What of a folder is linted, and what became of the rest.

    Attributes:
        failed: folders in it that cannot be read, and why.
    """

    def __init__(self, path: Path, is_excluded: Callable[[str | Path], bool]) -> None:
        self.failed: list[tuple[str, str]] = []
        self._path = path
        self._left_out: Counter[str] = Counter()
        self._endings: Counter[str] = Counter()
        lintable = list(self._walked())
        kept = [file for file in lintable if not is_excluded(file)]
        ignored = _ignored_by_git(path, kept)
        self._excluded, self._ignored = len(lintable) - len(kept), len(ignored)
        self._files = [file for file in kept if file not in ignored]

    def inputs(self) -> list[Input]:
        return [Input(str(file), named=False) for file in self._files]

    def why_nothing(self) -> str:
        """One sentence on a folder of which nothing is linted."""
        reasons = []
        if self._ignored:
            reasons.append(f"{count(self._ignored, 'file')} ignored by git: name them to have them linted")
        if self._excluded:
            reasons.append(f"{count(self._excluded, 'file')} excluded")
        if self._left_out:
            reasons.append(f"not looked into: {', '.join(sorted(self._left_out))}")
        named = [f"{number:,} {ending}" for ending, number in sorted(self._endings.items())]
        if named:
            reasons.append(
                f"of folders only requests, templates and sources are taken, not {', '.join(named)}: name them"
            )
        return f"{self._path}: nothing to lint ({'; '.join(reasons) or 'no file of a kind that is linted'})"

    def _walked(self) -> Iterator[Path]:
        for here, folders, files in os.walk(self._path, onerror=self._refused):
            self._left_out.update(each for each in folders if each in _LEFT_OUT)
            folders[:] = sorted(each for each in folders if each not in _LEFT_OUT)
            for name in sorted(files):
                if name.lower().endswith(_LINTED):
                    yield Path(here, name)
                elif name.lower().endswith(_WHEN_NAMED):
                    self._endings[PurePath(name).suffix.lower()] += 1

    def _refused(self, error: OSError) -> None:
        self.failed.append((str(error.filename), f"cannot be read: {error.strerror or error}"))


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
