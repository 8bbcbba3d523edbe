"""How the beginning that all conversations of one agent share fits the server's pages."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentcache_sdk.types import Finding

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Padding:
    """What ``pad="system"`` did to a session's system text, or why it did nothing.

    ::

        before   [ system text, tools, role markers ... )[ first user text ...
        after    [ system text, filler, tools, role markers ... )[ first user text ...
                 |  page  |  page  |  page  |  page  |  page   |

    ``print`` it for one line.

    Attributes:
        tokens: how many the static part grew by; 0 when nothing was done.
        text: the filler, as it was put behind the system text; empty when nothing was done.
        static_before, static_after: tokens of the static part (everything up to the first user text), where the server
            told; equal when nothing was done.
        page_size: in tokens, where the server tells.
        reason: why nothing was done; ``None`` when something was.
        head: the session's first messages as they are sent.
    """

    tokens: int = 0
    text: str = ""
    static_before: int | None = None
    static_after: int | None = None
    page_size: int | None = None
    reason: str | None = None
    head: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        if self.reason is not None:
            return f"padding: nothing was done: {self.reason}"
        pages = (self.static_after or 0) // (self.page_size or 1)
        return (
            f"padding: {self.tokens} {_plural('token', self.tokens)} behind the system text; static part "
            f"{self.static_before:,} -> {self.static_after:,} tokens = {pages:,} {_plural('page', pages)} of {self.page_size}"
        )


@dataclass(frozen=True)
class Prewarmed:
    """What ``client.prewarm`` found and computed.

    Attributes:
        tokens: length of the static part.
        cached_tokens: of those, how many were there already.
        computed_tokens: positions that were run; a part that was wholly there still costs one.
        pages: whole pages of the static part.
        tail_tokens: what of it lies in a page that is filled only partly.
        page_size: in tokens.
        padding: what ``pad="system"`` did; ``None`` without it.
    """

    tokens: int
    cached_tokens: int
    computed_tokens: int
    pages: int
    tail_tokens: int
    page_size: int | None
    padding: Padding | None = None


@dataclass(frozen=True)
class LintResult:
    """What one request would lose.  ``print`` it for a table; true when there is nothing to do.

    Attributes:
        findings: in the order of their place in the prompt.
        prompt_tokens: length of the prompt as the server renders it.
        static_tokens: of those, how many stand before the first user text: what all conversations with this system text
            and these tools share.
        tail_tokens: what of the static part lies behind the last whole page of it.
        page_size: in tokens, where the server tells.
        model: which model's template and tokenizer counted.
    """

    findings: tuple[Finding, ...]
    prompt_tokens: int
    static_tokens: int
    tail_tokens: int
    page_size: int | None = None
    model: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing is wasted that is more than a piece of information (severity ``info``)."""
        return all(finding.severity == "info" or finding.verdict == "legitimate" for finding in self.findings)

    def __bool__(self) -> bool:
        return self.clean

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table

        page = f", pages of {self.page_size}" if self.page_size else ""
        title = f"{self.prompt_tokens:,} tokens, {self.static_tokens:,} of them static{page}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("code", no_wrap=True)
        table.add_column("where", overflow="fold")
        table.add_column("tokens lost", justify="right")
        table.add_column("what to do", overflow="fold")
        for finding in self.findings:
            table.add_row(*_row(finding))
        return table

    def __str__(self) -> str:
        from rich.console import Console

        page = io.StringIO()
        # Plain whatever the environment says about colours: this text also goes into logs and files.
        Console(file=page, width=100, color_system=None, force_terminal=False).print(self.__rich__())
        lines = [line.rstrip() for line in page.getvalue().splitlines()]
        if not self.findings:
            lines = [lines[0].strip(), "nothing found"]
        return "\n".join(lines)


def _row(finding: Finding) -> tuple[str, str, str, str]:
    from agentcache_sdk._codes import CODES

    place = finding.location.path or ""
    if finding.location.token is not None:
        place = f"{place} (token {finding.location.token:,})".strip()
    kind = {"estimate": "about ", "upper_bound": "up to "}.get(finding.tokens_lost_kind or "", "")
    lost = "" if finding.tokens_lost is None else f"{kind}{finding.tokens_lost:,}"
    code = CODES.get(finding.code)
    return f"{finding.code} {finding.name or ''}".strip(), place, lost, "" if code is None else code.fix


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
