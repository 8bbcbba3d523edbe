"""``[tool.agentcache.lint]`` of pyproject.toml, or ``[lint]`` of agentcache.toml: found, read and checked."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentcache.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FailOn = Literal["info", "warning", "error"]
OutputFormat = Literal["full", "concise", "json", "jsonl", "sarif", "github", "junit"]

_PageSize = Annotated[int, Field(ge=1, le=1024)]
_Text = Annotated[str, Field(min_length=1)]
_NAMES = ("agentcache.toml", "pyproject.toml")
_CODES = 'a list of codes or their beginnings, such as ["AC1", "AC501"]'
_FILES = 'a list of file patterns, such as ["traces/*.jsonl"]'
_EXPECTED = {
    "select": _CODES,
    "extend-select": _CODES,
    "ignore": _CODES,
    "per-file-ignores": 'a table from file patterns to lists of codes, such as {"tests/**" = ["AC1"]}',
    "page-size": "a whole number from 1 to 1024, or a list of them",
    "tokenizer": "a folder or the name of a model",
    "template": "the name of a file",
    "min-tokens-lost": "a whole number from 0",
    "output-format": "one of full, concise, json, jsonl, sarif, github, junit",
    "fail-on": "one of info, warning, error",
    "baseline": "the name of a file",
    "include": _FILES,
    "exclude": _FILES,
    "suppress": 'a list of tables, such as {code = "AC101", file = "traces/*.jsonl", reason = "why it is left as it is"}',
    "code": 'a code or its beginning, such as "AC101"',
    "file": "a file pattern",
    "path": 'a path as findings have it, such as "messages[0].content" (a * stands for anything)',
    "reason": "why it is left as it is",
}


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=_kebab)


class Suppress(_Table):
    """Findings that are known and left as they are.

    Attributes:
        code: a code, or its beginning.
        file: pattern of the files that it is about; ``None``: all.
        path: path of the place inside a record or source; ``*`` stands for anything.
        reason: why.
    """

    code: _Text
    file: _Text | None = None
    path: _Text | None = None
    reason: Annotated[str, Field(pattern=r"\S")]


class LintConfig(_Table):
    """What a project's file says; ``None`` where it says nothing."""

    select: list[str] | None = None
    extend_select: list[str] = []
    ignore: list[str] = []
    per_file_ignores: dict[str, list[str]] = {}
    page_size: _PageSize | Annotated[list[_PageSize], Field(min_length=1)] | None = None
    tokenizer: _Text | None = None
    template: _Text | None = None
    min_tokens_lost: Annotated[int, Field(ge=0)] | None = None
    output_format: OutputFormat | None = None
    fail_on: FailOn | None = None
    baseline: _Text | None = None
    include: list[_Text] = []
    exclude: list[_Text] = []
    suppress: list[Suppress] = []


_KEYS = [_kebab(field) for field in LintConfig.model_fields]
_OTHERS = ["serve", "tool"]
"""Tables of agentcache.toml that are not the linter's."""


@dataclass(frozen=True)
class ConfigFile:
    """A file with a linter's table.

    Attributes:
        table: its name, as ``tool.agentcache.lint``.
        text: the whole file, for the lines that faults are in.
    """

    path: Path
    table: str
    config: LintConfig
    text: str

    @property
    def root(self) -> Path:
        """The folder that its names of files are relative to."""
        return self.path.parent

    @property
    def shown(self) -> str:
        """The file's name as seen from here."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    def line_of(self, word: str, nth: int = 1) -> int | None:
        """The line, from 1, in which the table has ``word`` for the nth time."""
        lines = self.text.splitlines()
        begin = next(
            (i for i, line in enumerate(lines) if line.strip().startswith(("[" + self.table, "[[" + self.table))), 0
        )
        found = [number for number, line in enumerate(lines[begin:], begin + 1) if word in line]
        return found[nth - 1] if len(found) >= nth else None


def find_config(start: Path) -> ConfigFile | None:
    """The nearest file with a linter's table in ``start`` or a folder above; in one folder agentcache.toml comes first.

    Raises:
        SettingsError: the file is no TOML, or its table is not as it should be.
    """
    for folder in (start, *start.parents):
        for name in _NAMES:
            path = folder / name
            if path.is_file() and (found := _read(path, required=False)) is not None:
                return found
    return None


def read_config(path: Path) -> ConfigFile:
    """The table of the file that ``--config`` names.

    Raises:
        SettingsError: as ``find_config``, and where there is no file or no table.
    """
    if not path.is_file():
        raise SettingsError(f"--config {path}: no such file")
    found = _read(path.absolute(), required=True)
    assert found is not None
    return found


def served_model(start: Path) -> str | None:
    """The model that the nearest agentcache.toml has ``agentcache serve`` serve."""
    for folder in (start, *start.parents):
        path = folder / _NAMES[0]
        if path.is_file():
            serve = _toml(path)[0].get("serve")
            model = serve.get("model") if isinstance(serve, dict) else None
            if isinstance(model, str) and model:
                return str(folder / model) if (folder / model).exists() else model
            return None
    return None


def _read(path: Path, *, required: bool) -> ConfigFile | None:
    document, text = _toml(path)
    _refuse_misplaced(document, path)
    names = ["tool.agentcache.lint"] if path.name == "pyproject.toml" else ["lint", "tool.agentcache.lint"]
    for name in names:
        table: Any = document
        for key in name.split("."):
            table = table.get(key) if isinstance(table, dict) else None
        if table is not None:
            return ConfigFile(path, name, _checked(table, path, name), text)
    if required:
        raise SettingsError(f"--config {path}: got no table [{names[0]}], expected one")
    return None


def _toml(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text("utf-8-sig")
        return tomllib.loads(text), text
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def _refuse_misplaced(document: dict[str, Any], path: Path) -> None:
    """A table whose name is misspelt, or keys that stand beside it, would be passed over in silence.

    Raises:
        SettingsError: as it says.
    """
    tool = document.get("tool")
    ours = tool.get("agentcache") if isinstance(tool, dict) else None
    levels = (
        [("tool.agentcache.", ours)] if path.name == "pyproject.toml" else [("", document), ("tool.agentcache.", ours)]
    )
    for prefix, level in levels:
        for key, value in level.items() if isinstance(level, dict) else ():
            table = isinstance(value, dict)
            if key in {"lint", *_OTHERS}:
                continue
            if table and _near(key, ["lint", *_OTHERS]) == "lint":
                raise SettingsError(f"{path}: [{prefix}{key}]: got a table that nothing reads, expected [{prefix}lint]")
            if (_kebab(key) in _KEYS) if table else (prefix or _near(key, _KEYS)):
                where = f"in [{prefix.rstrip('.')}]" if prefix else "in no table"
                raise SettingsError(f"{path}: {key}: got it {where}, expected it in [{prefix}lint]")
    if isinstance(tool, dict):
        for key, value in tool.items():
            if isinstance(value, dict) and "lint" in value and key != "agentcache" and _near(key, ["agentcache"]):
                raise SettingsError(
                    f"{path}: [tool.{key}.lint]: got a table that nothing reads, expected [tool.agentcache.lint]"
                )


def _near(name: str, known: Sequence[str]) -> str | None:
    """The one of ``known`` that ``name`` looks like."""
    return next(iter(difflib.get_close_matches(_kebab(name).lower(), known, 1, 0.7)), None)


def _checked(table: Any, path: Path, name: str) -> LintConfig:
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: {name}: got {_shown(table)}, expected a table")
    try:
        return LintConfig.model_validate(table)
    except ValidationError as error:
        faults = {_sentence(fault, table): None for fault in error.errors()}  # unions name a fault once a member
        raise SettingsError("\n".join(f"{path}: [{name}] {fault}" for fault in faults)) from None


def _sentence(fault: Any, table: dict[str, Any]) -> str:
    """The key, what it has, and what it should have."""
    keys = [str(key) if isinstance(key, int) else key for key in fault["loc"]]
    top = keys[0]
    nested = top == "suppress" and len(keys) > 2
    where = f"suppress[{keys[1]}].{keys[2]}" if nested else top
    known = [_kebab(field) for field in (Suppress if nested else LintConfig).model_fields]
    last = keys[2] if nested else top
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(_kebab(last).lower(), known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{where}: got an unknown key, expected one of {', '.join(known)}{hint}"
    if fault["type"] == "missing":
        return f"{where}: got nothing, expected {_EXPECTED[last]}"
    value = fault["input"] if nested else table[top]
    return f"{where}: got {_shown(value)}, expected {_EXPECTED.get(last, 'something else')}"


def _shown(value: Any) -> str:
    words = {True: "true", False: "false"}
    text = words[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
