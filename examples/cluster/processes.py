"""Processes that live and die together: started in order, told when they end, stopped in reverse."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

import httpx

from examples.cluster.plan import ProcessPlan

Say = Callable[[str, str], None]
"""Told who wrote a line, and the line: a process, by its name, or ``OWN``."""
OWN = "cluster"
"""Who says what happens to processes."""

_LONGEST_LINE = 2**20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
"""Between a death and the new start; twice as long each time it dies again within a minute."""
_STEADY_S = 60.0


class StartFailedError(Exception):
    """A process ended before it was ready, or was not ready in time; the message names it."""


class Process:
    """One process of a plan, over all of its starts.

    It has a process group of its own, so that Ctrl-C in the terminal reaches only who runs this, and so that what it started
    itself can be ended with it.
    """

    def __init__(self, plan: ProcessPlan, say: Say) -> None:
        self.plan = plan
        self._say = say
        self._running: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._running is None else self._running.pid

    async def start(self) -> None:
        """
        Raises:
            StartFailedError: there is no such program.
        """
        try:
            self._running = await asyncio.create_subprocess_exec(
                *self.plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.plan.env},
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            program = self.plan.command[0]
            raise StartFailedError(f"{self.plan.name}: {program}: {error.strerror or error}") from error
        self._reader = asyncio.create_task(self._read(self._running))

    async def _read(self, running: asyncio.subprocess.Process) -> None:
        assert running.stdout is not None
        while True:
            try:
                line = await running.stdout.readline()
            except ValueError:  # longer than any line that a log should have
                continue
            if not line:
                return
            self._say(self.plan.name, line.decode("utf-8", "replace").rstrip("\r\n"))

    async def wait_ready(self) -> None:
        """Return once it is ready.

        Raises:
            StartFailedError: it ended, or its time is over.
        """
        if self.plan.ready is None:
            return
        until = time.monotonic() + self.plan.ready_within_s
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            while not await _answers(http, self.plan.ready):
                if self._running is None or self._running.returncode is not None:
                    await self._drained()
                    raise StartFailedError(f"{self.plan.name} {self.ended()} before it was ready")
                if time.monotonic() > until:
                    raise StartFailedError(
                        f"{self.plan.name}: {self.plan.ready} did not answer within {self.plan.ready_within_s:g} s"
                    )
                await asyncio.sleep(0.1)

    async def wait(self) -> None:
        """Return once it has ended, and all that it wrote was told."""
        assert self._running is not None
        await self._running.wait()
        await self._drained()

    async def _drained(self) -> None:
        """What it started may live on with its pipe: its last lines are waited for, not the end of the pipe."""
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=1.0)

    def ended(self) -> str:
        """How, in words."""
        status = None if self._running is None else self._running.returncode
        if status is None:
            return "runs"
        return f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"

    async def stop(self) -> None:
        """SIGTERM to the process, which ends what it started itself; after its time SIGKILL to the whole group."""
        if self._running is None:
            return
        if self._running.returncode is None:
            with suppress(ProcessLookupError):
                self._running.send_signal(signal.SIGTERM)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._running.wait(), self.plan.stop_within_s)
        if self._running.returncode is None:
            self._say(OWN, f"{self.plan.name} did not end within {self.plan.stop_within_s:g} s and is killed")
        self.kill()
        await self.wait()
        if self._reader is not None:
            self._reader.cancel()

    def kill(self) -> None:
        """SIGKILL to all that is left of it."""
        if self._running is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running.pid, signal.SIGKILL)


async def _answers(http: httpx.AsyncClient, ready: str) -> bool:
    parts = urlsplit(ready)
    try:
        if parts.scheme == "http":
            return (await http.get(ready)).status_code == 200
        _, writer = await asyncio.wait_for(asyncio.open_connection(parts.hostname, parts.port), 2.0)
        writer.close()
    except (OSError, httpx.HTTPError, asyncio.TimeoutError):
        return False
    return True


class Cluster:
    """All processes of a plan.

    Args:
        say: told every line of every process, and what happens to it.
    """

    def __init__(self, plans: Iterable[ProcessPlan], say: Say) -> None:
        self.processes = [Process(plan, say) for plan in plans]
        self._say = say
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Each after the one before it is ready.

        Raises:
            StartFailedError: one is not; those that run already go on until ``stop``.
        """
        for process in self.processes:
            await process.start()
            await process.wait_ready()
            self._say(OWN, f"{process.plan.name} is ready, process {process.pid}")
            self._watchers.append(asyncio.create_task(self._watch(process)))

    async def wait(self) -> None:
        """Return when no process runs any more, nor will."""
        await asyncio.gather(*self._watchers)

    async def _watch(self, process: Process) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            await process.wait()
            if not process.plan.restart:
                self._say(OWN, f"{process.plan.name} {process.ended()}; the others go on")
                return
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _STEADY_S else pause
            self._say(OWN, f"{process.plan.name} {process.ended()}; started again in {pause:g} s")
            process.kill()  # what it had started holds its ports
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                await process.start()
                await process.wait_ready()
                self._say(OWN, f"{process.plan.name} is ready again, process {process.pid}")
            except StartFailedError as error:
                self._say(OWN, str(error))
                process.kill()

    async def stop(self) -> None:
        """End all, the last one first."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for process in reversed(self.processes):
            await process.stop()

    def kill(self) -> None:
        """End all at once, without asking."""
        for process in self.processes:
            process.kill()
