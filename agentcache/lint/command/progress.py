"""How far a run is, on standard error, once it takes longer."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

_PATIENCE_S = 1.5
"""Shorter runs show nothing."""
_EVERY_S = 0.25
_LINE_EVERY_S = 10.0


class Meter:
    """Counts bytes and requests, and shows them.

    Args:
        console: standard error.
        wanted: ``None``: only on a terminal and when it takes longer; ``True``: from the beginning, as lines where it is
            no terminal; ``False``: never.
        total: bytes of all files; ``None`` where standard input is one of them.
    """

    def __init__(self, console: Console, wanted: bool | None, total: int | None) -> None:
        self._console = console
        self._shown = wanted if wanted is not None else console.is_terminal
        self._total = total
        self._began = self._last = time.monotonic()
        self._wait = 0.0 if wanted else _PATIENCE_S
        self._bytes = 0
        self._requests = 0
        self._file = ""
        self._bar: Progress | None = None

    @contextmanager
    def reading(self, stream: BinaryIO, file: str) -> Iterator[io.BufferedReader]:
        """``stream``, whose bytes are counted."""
        self._file = file
        yield io.BufferedReader(_Counted(stream, self), 1 << 16)

    def read(self, count: int) -> None:
        self._bytes += count
        self._tick()

    def request(self) -> None:
        """One more request was linted."""
        self._requests += 1
        self._tick()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _tick(self) -> None:
        now = time.monotonic()
        every = _EVERY_S if self._console.is_terminal else _LINE_EVERY_S
        if not self._shown or now - self._last < every or now - self._began < self._wait:
            return
        self._last = now
        rate = self._requests / max(now - self._began, 1e-9)
        said = f"{self._requests:,} requests, {rate:,.0f}/s"
        if not self._console.is_terminal:
            share = f" of {self._total:,}" if self._total else ""
            self._console.print(f"{self._bytes:,}{share} bytes read, {said}", soft_wrap=True)
            return
        if self._bar is None:
            self._bar = _bar(self._console)
            self._bar.add_task("", total=self._total, requests="", file="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self._bytes, requests=said, file=_short(self._file))


class _Counted(io.RawIOBase):
    """A stream that tells a meter what is read from it."""

    def __init__(self, stream: BinaryIO, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        read1 = getattr(self._stream, "read1", self._stream.read)
        data: bytes = read1(len(buffer))
        buffer[: len(data)] = data
        self._meter.read(len(data))
        return len(data)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.fields[file]}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[requests]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        refresh_per_second=4,
    )


def _short(file: str) -> str:
    shown = "standard input" if file == "-" else "".join(char if char.isprintable() else "?" for char in file)
    return shown if len(shown) <= 40 else "…" + shown[-39:]
