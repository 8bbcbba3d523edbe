"""What a session's turns cost, as a table."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class ReportRow:
    """One turn, in tokens.

    ::

        the turn's prompt        [ cached ........... )[ computed ......... )
        previous turn's prompt   [ .............................. )
        lost                                           [ ........ )
    """

    turn: int
    sent: int
    """The whole prompt."""
    cached: int
    computed: int | None
    """Positions really run, the reply's included; ``None`` when the server does not say."""
    lost: int
    """Tokens of the previous turn's prompt that had to be computed again."""
    why: str
    """Of the first turn, and of those that lost something."""


@dataclass(frozen=True)
class SessionReport:
    """``print`` it, or give it to a ``rich`` console."""

    rows: tuple[ReportRow, ...]

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title="tokens per turn", title_justify="left")
        for name in ("turn", "sent", "cached", "computed", "lost"):
            table.add_column(name, justify="right")
        table.add_column("why", overflow="fold")
        for row in self.rows:
            computed = "?" if row.computed is None else f"{row.computed:,}"
            table.add_row(str(row.turn), f"{row.sent:,}", f"{row.cached:,}", computed, f"{row.lost:,}", row.why)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        page = io.StringIO()
        # Plain whatever the environment says about colours: this text also goes into logs and files.
        Console(file=page, width=100, color_system=None, force_terminal=False).print(self.__rich__())
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines())
