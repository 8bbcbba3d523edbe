"""What a session's turns cost, as a table."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group


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
    fix: str = ""
    """What to do about it, where something can be done."""


@dataclass(frozen=True)
class SessionReport:
    """``print`` it, or give it to a ``rich`` console."""

    rows: tuple[ReportRow, ...]
    notes: tuple[str, ...] = ()
    """What happened to the session besides its turns, oldest first: padding, compactions, revivals."""

    @property
    def sent(self) -> int:
        """Prompt tokens of all turns."""
        return sum(row.sent for row in self.rows)

    @property
    def cached(self) -> int:
        """Those of them that were reused."""
        return sum(row.cached for row in self.rows)

    @property
    def computed(self) -> int | None:
        """Positions that were run for all turns; ``None`` when the server did not say so of each."""
        counts = [row.computed for row in self.rows]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def lost(self) -> int:
        """Tokens that were computed although an earlier turn had computed them."""
        return sum(row.lost for row in self.rows)

    def __rich__(self) -> Group:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        share = f", {self.cached / self.sent:.0%} of what was sent was cached" if self.sent else ""
        table = Table(
            title=f"tokens per turn{share}", title_justify="left", title_style="bold", box=SIMPLE_HEAD, min_width=60
        )
        table.show_footer = len(self.rows) > 1
        footers = ("all", f"{self.sent:,}", f"{self.cached:,}", _count(self.computed), f"{self.lost:,}")
        for name, footer in zip(("turn", "sent", "cached", "computed", "lost"), footers, strict=True):
            table.add_column(name, footer, justify="right", no_wrap=True)
        for name in ("why", "fix"):
            if any(getattr(row, name) for row in self.rows):
                table.add_column(name, overflow="fold")
        for row in self.rows:
            figures = (str(row.turn), f"{row.sent:,}", f"{row.cached:,}", _count(row.computed), f"{row.lost:,}")
            reasons = (getattr(row, name) for name in ("why", "fix") if any(getattr(row, name) for row in self.rows))
            # As text: a reason may quote a prompt, and brackets in it are not the markup of a console.
            table.add_row(*figures, *map(Text, reasons))
        return Group(table, *(Text(f"note: {note}") for note in self.notes))

    def __str__(self) -> str:
        from rich.console import Console

        page = io.StringIO()
        # Plain whatever the environment says about colours: this text also goes into logs and files.
        Console(file=page, width=120, color_system=None, force_terminal=False).print(self.__rich__())
        return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
