"""What the template check says: a table of properties, and what is wrong."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from agentcache.lint.finding import Finding


class Outcome(enum.Enum):
    """How a property came out; the value is the word in the table."""

    YES = "yes"
    NO = "no"
    REFUSED = "refused"
    NONE = "-"


@dataclass(frozen=True)
class Row:
    """One property of the template.

    Attributes:
        question: what was tried, in a few words.
        outcome: ``YES``: the cache keeps everything; ``REFUSED``: the template takes no such conversation; ``NONE``: it does not
            apply to this template.
        lost: tokens computed again in the check's own conversation, in its dearest turn; ``None`` where nothing is.
        of: how many tokens that turn's prompt has.
        note: why, or what to know of it.
        kept_here: agentcache, which keeps the replies that it generated, loses nothing all the same; ``None`` where there is
            nothing to lose.
    """

    question: str
    outcome: Outcome
    lost: int | None = None
    of: int | None = None
    note: str = ""
    kept_here: bool | None = None


@dataclass(frozen=True)
class TemplateReport:
    """The whole answer for one template.

    Attributes:
        name: the template's file or model.
        tokenizer: what the tokens were counted with.
        estimated: it is not the template's own tokenizer, so the figures are near ones.
    """

    name: str
    tokenizer: str
    estimated: bool
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]

    @property
    def keeps(self) -> bool:
        """Whether nothing was found that computes tokens again."""
        return not self.findings
