"""What a rule reports.  One shape for the linter, the SDK's warnings and the ``findings`` of HTTP responses."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Severity = Literal["error", "warning", "info"]
Confidence = Literal["confirmed", "suspected"]
Verdict = Literal["waste", "legitimate", "unavoidable"]
LossKind = Literal["exact", "upper_bound", "estimate"]
Applicability = Literal["safe", "unsafe", "display"]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Location(_Data):
    """A place in a request, and the same place in the prompt that it renders to.

    Attributes:
        file: as it was named on the command line; ``-`` for standard input.
        record: line of the file, counted from 1; the number of the request in a file without empty lines.
        path: JSON path inside the record, such as ``messages[0].content``.
        char: the first character that matters, counted from 0 inside the string at ``path``.
        token: its token in the rendered prompt, counted from 0.
        page: the page of that token.
    """

    file: str
    record: int | None = None
    path: str | None = None
    char: int | None = None
    token: int | None = None
    page: int | None = None

    @property
    def reference(self) -> str:
        """``chat.jsonl:3``: where an editor opens it."""
        return self.file if self.record is None else f"{self.file}:{self.record}"


class Edit(_Data):
    """Replace characters ``[start, end)`` of the string at ``path`` of one record by ``content``."""

    file: str
    record: int
    path: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    content: str


class Fix(_Data):
    """How it can be mended.  ``display``: advice for a person; there is nothing to apply."""

    applicability: Applicability = "display"
    edits: tuple[Edit, ...] = ()


class Finding(_Data):
    """One defect, reported once however many requests show it.

    Attributes:
        confidence: ``confirmed`` by comparing two requests, or only ``suspected`` from the look of one.
        location: where the first request that shows it departs.
        session: label of that request's session.
        compared_to: the earlier request it was compared with, as ``file:record``.
        before: what the earlier request says there, with a little of what surrounds it.
        after: what this one says there.
        tokens_lost: prompt tokens computed again that a warm cache would have served, over all requests that show it;
            ``None`` where no figure can be given.
        tokens_lost_kind: ``exact``: measured by rendering and matching the request again without the defect.
        shared_by: how many sessions have the same prompt up to this place.
        message: the finding in one sentence.
        help: what to do about it.
    """

    code: str
    name: str
    severity: Severity
    confidence: Confidence = "confirmed"
    verdict: Verdict = "waste"
    location: Location
    session: str | None = None
    compared_to: str | None = None
    before: str | None = None
    after: str | None = None
    tokens_lost: int | None = None
    tokens_lost_kind: LossKind | None = None
    shared_by: int | None = None
    fix: Fix = Fix()
    message: str
    help: str | None = None
