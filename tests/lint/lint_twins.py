"""The linter's corpus: for each rule inputs that break it, and the same without the defect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Input = Sequence[Mapping[str, Any]] | Mapping[str, str]
"""Request bodies, which become the lines of one file, or texts of files by name."""


@dataclass(frozen=True)
class Twin:
    """Two inputs that differ in one defect.

    Attributes:
        code: the only rule that the failing one breaks.
        name: what is special about it, in a few words.
        flags: of the command line, for both.
        path: where the defect is found, as the finding says it; ``None``: not compared.
        lost: tokens that it costs; ``None``: not compared.
    """

    code: str
    name: str
    failing: Input
    clean: Input
    flags: tuple[str, ...] = ()
    path: str | None = None
    lost: int | None = None


def write_input(folder: Path, given: Input) -> list[Path]:
    """The files of ``given`` in ``folder``, in order."""
    if isinstance(given, Mapping):
        files = {name: str(text) for name, text in given.items()}
    else:
        files = {"run.jsonl": "".join(json.dumps(body, ensure_ascii=False) + "\n" for body in given)}
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        paths.append(path)
    return paths
