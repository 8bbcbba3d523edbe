"""A TCP proxy in front of a server that makes it far away, narrow or unreliable, as it is told while it runs.

::

    client ──────────── bytes_per_s ───────────► server
           ◄── delay_ms ─── bytes_per_s ────────            replies are late by delay_ms, and as fast after one another as before

A process of its own, so that it does not wait for the one it is measured with::

    python -m bench.cluster_parts.slow_proxy 127.0.0.1:6379 line.json

prints its port, and does what ``line.json`` says, whenever that changes; ``ProxyProcess`` starts one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

_PIECE = 2**16
_LOOK_S = 0.02
"""Seconds between two looks at the file."""


@dataclass(frozen=True)
class Line:
    """What lies between client and server.

    Attributes:
        delay_ms: by which replies are late.
        bytes_per_s: in each direction, of each connection; 0: as fast as it goes.
        cut_after: bytes of replies, counted from a change of the line on, after which the connection is cut; 0: never.
    """

    delay_ms: float = 0.0
    bytes_per_s: float = 0.0
    cut_after: int = 0


class SlowProxy:
    """
    Args:
        host, port: the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self.line = Line()
        self._target = (host, port)
        self._passed = 0

    def change(self, line: Line) -> None:
        self.line = line
        self._passed = 0

    async def listen(self, port: int = 0) -> asyncio.Server:
        """Raises OSError when the port cannot be had."""
        return await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            both = [
                asyncio.create_task(self._requests(reader, back)),
                asyncio.create_task(self._replies(there, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            back.transport.abort()
            writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            await self._pass(data, writer)

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Replies wait side by side for their delay, so that it takes nothing from how much arrives in a second."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1024)

        async def take() -> None:
            while data := await reader.read(_PIECE):
                await waiting.put((loop.time() + self.line.delay_ms / 1000, data))
            await waiting.put((0.0, b""))

        taking = asyncio.create_task(take())
        try:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                room = self.line.cut_after - self._passed
                cut = self.line.cut_after > 0 and len(data) >= room
                await self._pass(data[: max(0, room)] if cut else data, writer)
                if cut or not data:
                    await writer.drain()
                    return
                self._passed += len(data)
        finally:
            taking.cancel()

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if self.line.bytes_per_s:
            await asyncio.sleep(len(data) / self.line.bytes_per_s)


class ProxyProcess:
    """A ``SlowProxy`` in a process of its own, until the block ends.

    Args:
        folder: where the file with its line is kept.
        host, port: the server.
    """

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._file = folder / f"line-{host}-{port}.json"
        self._target = f"{host}:{port}"
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def change(self, line: Line) -> None:
        """From at most some hundredths of a second from now on."""
        written = self._file.with_suffix(".partial")
        written.write_text(json.dumps(asdict(line)))
        written.replace(self._file)

    def __enter__(self) -> ProxyProcess:
        self.change(Line())
        command = [sys.executable, "-m", "bench.cluster_parts.slow_proxy", self._target, str(self._file)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


async def _run(target: str, file: Path) -> None:
    host, _, port = target.rpartition(":")
    proxy = SlowProxy(host, int(port))
    server = await proxy.listen()
    print(server.sockets[0].getsockname()[1], flush=True)
    seen: tuple[int, int] | None = None
    parent = os.getppid()
    while os.getppid() == parent:  # ends with whoever started it
        about = file.stat()
        if (about.st_mtime_ns, about.st_ino) != seen:
            seen = (about.st_mtime_ns, about.st_ino)
            proxy.change(Line(**json.loads(file.read_text("utf-8"))))
        await asyncio.sleep(_LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", help="the server, as host:port")
    parser.add_argument("file", type=Path, help="JSON with fields of Line")
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.target, arguments.file))


if __name__ == "__main__":
    main()
