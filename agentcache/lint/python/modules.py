"""Finds the modules of a project that a source imports, and parses each once."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

from agentcache.lint.python.module import Module, index_module

_LARGEST_BYTES = 500_000
_HIGHEST_PARENTS = 8
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_WORTH_READING = re.compile(
    r"""["'](?:system|developer|messages|tool_calls|input_schema|parameters|function)["']
      | \bSystemMessage | \bmessages\s*= | \binstructions\b
      | \bsystem\s*= | (?i:system_?(?:prompt|message|instruction)) | \btools\s*= | Agent\( | Tool\( | (?i:prompt\w*)\s*=""",
    re.VERBOSE,
)


def is_worth_reading(text: str) -> bool:
    """The source has something to do with prompts; others are only parsed."""
    return _WORTH_READING.search(text) is not None


def parsed(text: str) -> ast.Module:
    """
    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python that this Python can read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


class ModuleFinder:
    """The other files of a project; one finder serves all files that are checked together.

    Args:
        linted: the files that are checked together: what such a file tells itself is not told again where it is used.
            ``None``: all that can be found.
    """

    def __init__(self, linted: Collection[str] | None = None) -> None:
        self._linted = None if linted is None else {Path(name).absolute() for name in linted}
        self._modules: dict[Path, tuple[tuple[int, int], Module | None]] = {}
        self._paths: dict[tuple[Path, str], tuple[tuple[Path, tuple[str, ...]], ...]] = {}
        self._bases: dict[Path, tuple[Path, ...]] = {}

    def is_linted(self, module: Module) -> bool:
        return module.path is not None and (self._linted is None or module.path in self._linted)

    def module(self, path: Path) -> Module | None:
        """The module in a file, read again when the file has changed; ``None``: it cannot be read, or is too large."""
        try:
            status = path.stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._modules.get(path)
        if known is None or known[0] != stamp:
            known = stamp, _load(path) if status.st_size <= _LARGEST_BYTES else None
            self._modules[path] = known
        return known[1]

    def places(self, dotted: str, file: Path) -> tuple[tuple[Path, tuple[str, ...]], ...]:
        """Files that ``app.texts.make`` or ``..texts.make``, read in ``file``, may be in, with what is left of the name."""
        key = file.parent, dotted
        if key not in self._paths:
            self._paths[key] = tuple(self._search(dotted, file))
        return self._paths[key]

    def _search(self, dotted: str, file: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
        names = dotted.lstrip(".")
        level = len(dotted) - len(names)
        words = tuple(word for word in names.split(".") if word)
        if not words or (not level and words[0] in sys.stdlib_module_names):
            return
        if level:
            base = file.parent
            for _ in range(level - 1):
                base = base.parent
            yield from _inside(base, words)
            return
        for base in self._roots(file.parent):
            found = list(_inside(base, words))
            if found:
                yield from found
                return

    def _roots(self, folder: Path) -> tuple[Path, ...]:
        """Where absolute imports may begin: the folder and those around it, up to the project's."""
        if folder not in self._bases:
            bases: list[Path] = []
            for parent in (folder, *folder.parents)[:_HIGHEST_PARENTS]:
                bases.append(parent)
                if any((parent / mark).exists() for mark in _ROOT_MARKS):
                    bases += [parent / "src"]
                    break
            self._bases[folder] = tuple(bases)
        return self._bases[folder]


def _inside(base: Path, words: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The longest way first: a module's file before the packages around it."""
    found: list[tuple[Path, tuple[str, ...]]] = []
    for index, word in enumerate(words):
        file = base / f"{word}.py"
        base = base / word
        init = base / "__init__.py"
        if init.is_file():
            found.append((init, words[index + 1 :]))
        elif file.is_file():
            found.append((file, words[index + 1 :]))
            break
        elif not base.is_dir():
            break
    yield from reversed(found)


def _load(path: Path) -> Module | None:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        module = index_module(parsed(text))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module.path, module.worth_reading = path, is_worth_reading(text)
    return module
