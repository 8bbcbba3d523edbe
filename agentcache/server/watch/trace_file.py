"""``--trace FILE``: each prompt that was answered, one JSON object a line, with the exact token ids, for ``agentcache lint``.

::

    event loop ── note(Answered) ──► queue, bounded in bytes ──► thread: JSON, one write a line ──► FILE (0600, locked)

Nobody waits for the file.  What does not fit into the queue is left out, a file that cannot be written to any more is given
up; either is said once.  Unlike everything else that watches a server it holds what was said.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.errors import SettingsError
from agentcache.server.usage import Costs, Notes
from agentcache.sessions.session import as_message

if TYPE_CHECKING:
    from agentcache.chat.tokenizer import Tokenizer
    from agentcache.server.bodies import GenerationBody
    from agentcache.server.generation import Delta
    from agentcache.server.misses import Asked

logger = logging.getLogger(__name__)

FORMAT, VERSION = "agentcache-trace", 1
STOP_S = 2.0
"""How long the last lines may take to be written when the server stops."""
_QUEUED_BYTES = 256 * 2**20
_IDS_AT_ONCE = 4096
"""Of a long prompt, so that the engine's thread gets its turn in between."""
_BODY = "sent_body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A request that the engine had, after its end, whatever its end was.

    Attributes:
        route, session, started, status, error, model: as in ``RequestRecord``.
        tenant: which of the server's keys sent it, counted from 0; ``None`` where there is one at most.
        salt: its ``cache_salt``.
        body: as it was sent.
        told: fields of the chat completion that the body was translated to; ``None`` where the body says it all.
        prompts: token ids of each prompt.
        asked: what each prompt was made of.
        n: choices a prompt.
        choices: all that was generated, also what nobody took any more.
    """

    request_id: str
    answer_id: str
    route: str
    session: str | None
    started: float
    status: int
    error: str | None
    model: str
    page_size: int
    tenant: int | None
    salt: str | None
    body: bytes
    told: Mapping[str, Any] | None
    prompts: Sequence[Sequence[int]]
    asked: Sequence[Asked]
    n: int
    choices: Sequence[Delta]
    notes: Notes

    @property
    def size(self) -> int:
        """Bytes that it keeps from being freed, roughly."""
        tokens = sum(map(len, self.prompts)) + sum(len(choice.token_ids) for choice in self.choices)
        return 2 * len(self.body) + 8 * tokens + 4096


class TraceFile:
    """
    Args:
        path: created for its owner alone; an older trace goes on.
        owners: of the server's keys (``Home.owner``), in order.

    Raises:
        SettingsError: it cannot be written, or another server writes it.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, owners: Sequence[bytes] = ()) -> None:
        self._path = path
        self._tokenizer = tokenizer
        self._tenants = {owner: number for number, owner in enumerate(owners)} if len(owners) > 1 else {}
        self._file = _opened(path)
        self._waiting: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._given_up = False
        self._said_missing = False
        # A daemon: a file system that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="agentcache-trace", daemon=True)
        self._thread.start()

    def tenant(self, owner: bytes) -> int | None:
        """Which key an owner is; ``None`` where there are not several."""
        return self._tenants.get(owner)

    def note(self, answered: Answered) -> None:
        """Queue what was answered; returns at once."""
        if self._given_up:
            return
        size = answered.size
        with self._lock:
            fits = self._waiting_bytes + size <= _QUEUED_BYTES
            if fits:
                self._waiting_bytes += size
        if fits:
            self._waiting.put(answered)
        elif not self._said_missing:
            self._said_missing = True
            logger.warning(
                "--trace %s: it is not written as fast as requests are answered; some are left out", self._path
            )

    async def close(self) -> None:
        """Write what is queued, for at most ``STOP_S`` seconds."""
        self._waiting.put(None)
        until = time.monotonic() + STOP_S
        # Polled, not joined on a worker thread: the event loop would wait for that one at its own end.
        while self._thread.is_alive() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._thread.is_alive():
            logger.warning("--trace %s: the last requests were not written within %g s", self._path, STOP_S)

    def _write_all(self) -> None:
        try:
            while (answered := self._waiting.get()) is not None:
                with self._lock:
                    self._waiting_bytes -= answered.size
                if not self._given_up:
                    self._write(answered)
        finally:
            os.close(self._file)

    def _write(self, answered: Answered) -> None:
        try:
            lines = [_line(answered, index, self._tokenizer) for index in range(len(answered.prompts))]
        except Exception:
            logger.exception("--trace %s: request %s could not be written down", self._path, answered.request_id)
            return
        end = None
        try:
            for line in lines:
                end = os.fstat(self._file).st_size
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._given_up = True
            logger.warning("--trace %s: %s; no more is written to it", self._path, error.strerror or error)
            self._cut(end)

    def _cut(self, end: int | None) -> None:
        """Take the beginning of a line away that could not be written wholly."""
        if end is not None:
            try:
                os.ftruncate(self._file, end)
            except OSError:
                logger.warning("--trace %s: its last line is broken", self._path)


class SentBodies:
    """ASGI middleware that keeps bodies of requests as they come, for ``sent_body``; only there where a trace is written."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        scope.setdefault("state", {})[_BODY] = parts

        async def kept() -> Message:
            message = await receive()
            if message["type"] == "http.request" and message.get("body"):
                parts.append(message["body"])
            return message

        await self._app(scope, kept, send)


def sent_body(scope: Scope) -> bytes:
    """The body of a request that was read wholly."""
    return b"".join(scope.get("state", {}).get(_BODY, ()))


def with_untaken(gathered: Sequence[Delta], untaken: Sequence[Delta]) -> list[Delta]:
    """All that was generated: what an answer was written from, and what came behind it until the request was cut."""
    choices = {choice.choice: choice for choice in gathered}
    for later in untaken:
        known = choices.get(later.choice)
        if known is not None and known is not later:
            both = replace(known, pieces=[*known.pieces], token_ids=[*known.token_ids])
            both.merge(later)
            choices[later.choice] = both
        else:
            choices[later.choice] = later
    return [choices[choice] for choice in sorted(choices)]


def told_fields(route: str, body: GenerationBody, raw: bytes) -> dict[str, Any] | None:
    """What a body was translated to beside its messages, where its conversation goes on from what was sent before."""
    named = {"/v1/messages": (b'"thread"',), "/v1/responses": (b'"previous_response_id"', b'"item_reference"', b'"id"')}
    if body.session is None and not any(name in raw for name in named.get(route, ())):
        return None
    options = ((name, getattr(body, name, None)) for name in ("tool_choice", "response_format", "prompt_cache_key"))
    return {name: value for name, value in options if value is not None}


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"--trace {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # whoever wrote it was killed in the middle of a line
            os.write(file, b"\n")
    except OSError as error:
        os.close(file)
        why = "another server writes it" if isinstance(error, BlockingIOError) else error.strerror or error
        raise SettingsError(f"--trace {path}: {why}") from None
    return file


# -- lines


def _line(answered: Answered, index: int, tokenizer: Tokenizer) -> bytes:
    """What is written of prompt ``index``."""
    ids = answered.prompts[index]
    asked = answered.asked[index] if answered.asked else None
    first = index * answered.n
    choices = [choice for choice in answered.choices if first <= choice.choice < first + answered.n]
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "route": answered.route,
        "request_id": answered.request_id,
        "answer_id": answered.answer_id or None,
        "session": answered.session,
        "started": answered.started,
        "status": answered.status,
        "error": answered.error,
        "model": answered.model,
        "tenant": answered.tenant,
        "cache_salt": answered.salt,
        "page_size": answered.page_size,
    }
    if len(answered.prompts) > 1:
        head["prompt"] = index
    parts = [(name, _json(value)) for name, value in head.items()]
    # No JSON text has an end of line inside of a string.
    parts.append(
        ("request", answered.body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b" ").replace(b"\n", b" ") or b"null")
    )
    if (conversation := _conversation(answered, ids, asked, tokenizer)) is not None:
        parts.append(("conversation", conversation))
    parts.append(("prompt_token_ids", _ids_json(ids)))
    parts.append(("choices", b"[" + b",".join(_choice(choice, first, asked) for choice in choices) + b"]"))
    parts += [(name, _json(value)) for name, value in _costs(answered, ids, choices).items()]
    return b"{" + b",".join(b'"' + name.encode() + b'":' + value for name, value in parts) + b"}\n"


def _conversation(answered: Answered, ids: Sequence[int], asked: Asked | None, tokenizer: Tokenizer) -> bytes | None:
    """What the prompt says, where the body alone does not."""
    if asked is None or (answered.told is None and len(answered.prompts) == 1):
        return None
    if not asked.messages:
        return _json({"prompt": tokenizer.decode(list(ids), skip_special_tokens=False)})
    fields = {
        **(answered.told or {}),
        "tools": asked.tools or None,
        "chat_template_kwargs": asked.template_kwargs or None,
    }
    known = [(name, _json(value)) for name, value in fields.items() if value is not None]
    messages = b"[" + b",".join(_json(message) for message in asked.messages) + b"]"
    return (
        b"{"
        + b",".join(b'"' + name.encode() + b'":' + value for name, value in [("messages", messages), *known])
        + b"}"
    )


def _choice(choice: Delta, first: int, asked: Asked | None) -> bytes:
    text = choice.text
    reason = choice.finish_reason
    if asked is None or not asked.messages:
        said: dict[str, Any] = {"text": text}
    else:
        said = {"message": as_message(asked.read(choice.choice, text))}
    fields = {
        "index": choice.choice - first,
        "finish_reason": None if reason is None else reason.value,
        "stop_reason": choice.stop_reason,
        "end_token": choice.end_token,
        **said,
    }
    return _json(fields)[:-1] + b',"token_ids":' + _ids_json(choice.token_ids) + b"}"


def _costs(answered: Answered, ids: Sequence[int], choices: Sequence[Delta]) -> dict[str, Any]:
    """As the answer has them; of a request that was cut, the prompt's length alone."""
    reports = [choice.report for choice in choices if choice.report is not None]
    if len(reports) < answered.n:
        return {"usage": {"prompt_tokens": len(ids)}, "agentcache": None}
    costs = Costs(reports, answered.n, answered.page_size)
    return {"usage": costs.usage(), "agentcache": costs.cache_report(answered.notes)}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no part of a trace")


def _ids_json(ids: Sequence[int]) -> bytes:
    return b"[" + b",".join(_in_pieces(ids)) + b"]"


def _in_pieces(ids: Sequence[int]) -> Iterator[bytes]:
    for start in range(0, len(ids), _IDS_AT_ONCE):
        yield ",".join(map(str, ids[start : start + _IDS_AT_ONCE])).encode()
