"""A file of findings that are known: only new ones are reported.  Sorted, a finding a line, so that changes read well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentcache.errors import SettingsError
from agentcache.lint.finding import Finding
from agentcache.lint.fingerprints import fingerprint, name_of, path_of
from agentcache.lint.outputs.whole_files import written_whole

_NOT_KEPT = frozenset({"AC903"})
"""What cannot be read is no finding that one could get used to."""


class KnownFinding(BaseModel):
    """Findings that are alike.

    Attributes:
        count: how many there are.
        fingerprint: of code, file, path and the text around; no text of a prompt is kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str
    code: str
    path: str | None = None
    count: Annotated[int, Field(ge=1)]
    fingerprint: str

    @property
    def words(self) -> str:
        where = self.file if self.path is None else f"{self.file} {self.path}"
        return f"{self.code} in {where}" + (f" ({self.count} times)" if self.count > 1 else "")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    agentcache_lint_baseline: Literal[1]
    findings: list[KnownFinding]


@dataclass(frozen=True)
class Looked:
    """What a run has looked at: of anything else nothing is gone.

    Attributes:
        files: that were linted.
        codes: of the rules that ran.
        folders: that were linted: files of them that do not exist any more were linted too.
        everything: all files of the project were linted.
        hidden: findings that are not reported because of what was asked for, and are there.
    """

    files: Collection[str] = ()
    codes: Collection[str] = ()
    folders: Collection[str] = ()
    everything: bool = False
    hidden: Sequence[Finding] = ()


@dataclass(frozen=True)
class Compared:
    """
    Attributes:
        new: findings that the baseline does not have.
        known: how many it has.
        gone: what it has of what was looked at and is not found any more.
    """

    new: list[Finding]
    known: int
    gone: list[KnownFinding]


class Baseline:
    """
    Args:
        path: the file; names of files in it are relative to its folder.
        line_of: the text of a finding's line in a source or template.
    """

    def __init__(self, path: Path, line_of: Callable[[Finding], str | None]) -> None:
        self._path = path
        self._root = path.absolute().parent
        self._line_of = line_of

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether the file at ``path`` is a baseline, of this version or of another."""
        try:
            value = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(value, dict) and "agentcache_lint_baseline" in value

    def compare(self, findings: Iterable[Finding], looked: Looked) -> Compared:
        """
        Raises:
            SettingsError: there is no such file, or it is no baseline.
        """
        had = self._read()
        left = {known.fingerprint: known.count for known in had}
        new: list[Finding] = []
        count = 0
        for finding in findings:
            key = self._fingerprint(finding)
            if finding.code not in _NOT_KEPT and left.get(key, 0) > 0:
                left[key] -= 1
                count += 1
            else:
                new.append(finding)
        for finding in looked.hidden:
            left[self._fingerprint(finding)] = left.get(self._fingerprint(finding), 0) - 1
        gone = [known for known in self._looked_at(had, looked) if left[known.fingerprint] > 0]
        return Compared(new, count, [known.model_copy(update={"count": left[known.fingerprint]}) for known in gone])

    def _looked_at(self, had: Iterable[KnownFinding], looked: Looked) -> Iterator[KnownFinding]:
        linted = {name_of(file, self._root) for file in looked.files}
        folders = [PurePath(name_of(folder, self._root)) for folder in looked.folders]
        for known in had:
            path = PurePath(known.file)
            if known.code in looked.codes and (
                known.file in linted
                or (known.file != "-" and looked.everything)
                or (any(path.is_relative_to(folder) for folder in folders) and not (self._root / path).exists())
            ):
                yield known

    def write(self, findings: Sequence[Finding]) -> int:
        """Write ``findings``; how many there are in the file.

        Raises:
            SettingsError: it cannot be written.
        """
        kept = [finding for finding in findings if finding.code not in _NOT_KEPT]
        counts = Counter(self._fingerprint(finding) for finding in kept)
        alike = {self._fingerprint(finding): finding for finding in kept}
        known = [
            KnownFinding(
                file=name_of(finding.location.file, self._root),
                code=finding.code,
                path=path_of(finding),
                count=counts[key],
                fingerprint=key,
            )
            for key, finding in alike.items()
        ]
        known.sort(key=lambda each: (each.file, each.code, each.path or "", each.fingerprint))
        lines = ",\n".join("    " + json.dumps(each.model_dump(exclude_none=True)) for each in known)
        text = '{\n  "agentcache_lint_baseline": 1,\n  "findings": [' + (f"\n{lines}\n  " if lines else "") + "]\n}\n"
        with written_whole(self._path, "--write-baseline") as out:
            out.write(text)
        return len(kept)

    def _read(self) -> list[KnownFinding]:
        try:
            return _File.model_validate_json(self._path.read_bytes()).findings
        except OSError as error:
            raise SettingsError(
                f"--baseline {self._path}: cannot be read: {error.strerror or error}; --write-baseline {self._path} writes one"
            ) from None
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(key) for key in fault["loc"])
            raise SettingsError(
                f"--baseline {self._path}: got no baseline of agentcache lint ({where + ': ' if where else ''}{fault['msg']}), "
                "expected what --write-baseline writes"
            ) from None

    def _fingerprint(self, finding: Finding) -> str:
        return fingerprint(finding, self._root, self._line_of(finding))
