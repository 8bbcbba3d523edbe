"""A small engine that says what it is told to, at the pace it is told: for what only concerns the HTTP protocol.

Token ids are bytes; the reply to every prompt is the alphabet, over and over.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field

import tokenizers
from tokenizers import models

from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.chat.messages import normalize_messages
from agentcache.chat.segments import Encoded, Piece
from agentcache.engine.bounds import Bounds, check_request
from agentcache.engine.loop import EngineInfo
from agentcache.engine.stats import EngineStats, Metrics
from agentcache.engine.streams import OutputStream
from agentcache.errors import QueueFullError
from agentcache.request import FinishReason, Output, Request, SequenceReport, TokenLogprob

ALPHABET = b"abcdefghijklmnopqrstuvwxyz"


class ByteTokenizer:
    chat_template = None

    def __init__(self):
        self.control_tokens: dict[str, int] = {}
        self.special_tokens: dict[str, int] = {}
        self.chat_templates = {}
        self.backend = tokenizers.Tokenizer(models.WordLevel({}, unk_token="?"))  # says nothing of lengths

    def last_control_before(self, text, position):
        return 0

    def encode(self, text, *, add_special_tokens=False, parse_special=True):
        return list(text.encode())

    def encode_prompt(self, text):
        return self.encode(text)

    def decode(self, ids, *, skip_special_tokens=True, shown=frozenset()):
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")

    def is_special(self, token):
        return False

    def token_bytes(self, token):
        return bytes([token]) if token < 256 else b""


@dataclass(frozen=True)
class Rendered:
    text: str
    spells_controls: bool = False

    @property
    def token_ids(self):
        return list(self.text.encode())

    def encoded(self):
        whole = Encoded()
        whole.add(Piece(array("I", self.token_ids), array("I", range(len(self.text)))), 0)
        return whole

    def encode(self):
        return self.token_ids, [(i, i + 1) for i in range(len(self.text))]

    def encode_from(self, start):
        return list(self.text[start:].encode())


class PlainRenderer:
    tokenizer = ByteTokenizer()

    def render_text(self, messages, *, tools=None, add_generation_prompt=True, template_kwargs=None, root=b""):
        asked = normalize_messages(messages)
        return Rendered("".join(f"{message['role']}:{message['content']}\n" for message in asked))

    render = render_text

    def opening(self, chat):
        return ""


@dataclass
class Script:
    """How the stub behaves; change it between requests."""

    interval: float = 0.0
    """Seconds between tokens."""
    fail_after: int | None = None
    """Tokens before the request ends with an error."""
    queue_full: bool = False


@dataclass
class StubEngine:
    script: Script = field(default_factory=Script)
    info: EngineInfo = field(
        default_factory=lambda: EngineInfo("stub", 4096, 16, 256, 300, 64, 4096, 1_700_000_000, "stub")
    )
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    renderer: PlainRenderer = field(default_factory=PlainRenderer)
    root_base: tuple[str, ...] = ("stub",)
    running: int = 0
    emitted: int = 0
    aborted: int = 0
    roots: list[bytes] = field(default_factory=list)
    ready: bool = False
    tasks: set[asyncio.Task] = field(default_factory=set)
    neighbours: list = field(default_factory=list)
    page_store: object = None

    def start(self):
        self.ready = True

    async def stop(self):
        self.ready = False
        for task in self.tasks:
            task.cancel()

    def now(self):
        return time.monotonic()

    def healthy(self):
        return self.ready, "ok" if self.ready else "loading"

    async def settled(self):
        """Nothing is under way."""

    def paged(self, ids, root, bookmark=None):
        return PagedTokens(ids, self.info.page_size, root)

    def submit(self, prompt, params, *, root, request_id, standing=None, bookmark=None):
        if self.script.queue_full:
            raise QueueFullError("3 requests wait, and no more than 3 may")
        info = self.info
        bounds = Bounds(info.max_model_len, info.capacity, info.vocab_size, info.max_running)
        check_request(Request(request_id, prompt, params, root, lambda _: None), bounds)
        self.roots.append(root)
        stream = OutputStream(params.n, lambda: self._abort(task))
        task = asyncio.get_running_loop().create_task(self._generate(stream, len(prompt), params))
        self.tasks.add(task)
        self.running += 1
        task.add_done_callback(self._done)
        return stream

    def _done(self, task):
        self.tasks.discard(task)
        self.running -= 1

    def _abort(self, task):
        if not task.done():
            self.aborted += 1
            task.cancel()

    async def _generate(self, stream, prompt_len, params):
        room = self.info.capacity - prompt_len
        count = room if params.max_tokens is None else min(params.max_tokens, room)
        prompt_logprobs = None
        if params.prompt_logprobs is not None:
            prompt_logprobs = (None, *(TokenLogprob(97, -2.0, ((97, -2.0),)) for _ in range(prompt_len - 1)))
        for position in range(max(count, 1)):
            await asyncio.sleep(self.script.interval)
            if self.script.fail_after is not None and position >= self.script.fail_after:
                stream.push(Output(0, "", finish_reason=FinishReason.ERROR, error="the step failed"))
                return
            for index in range(params.n):
                stream.push(self._output(index, position, count, prompt_len, params, prompt_logprobs))

    def _output(self, index, position, count, prompt_len, params, prompt_logprobs):
        token = ALPHABET[position % 26]
        self.emitted += 1
        last = position + 1 >= count
        entry = TokenLogprob(token, -0.5, ((token, -0.5), (200, float("-inf"))))
        return Output(
            index,
            chr(token) if count else "",
            (token,) if count else (),
            (entry,) if count and params.logprobs is not None else (),
            finish_reason=FinishReason.LENGTH if last else None,
            report=self._report(prompt_len, count, index) if last else None,
            prompt_logprobs=prompt_logprobs if position == 0 else None,
        )

    def _report(self, prompt_len, count, index):
        computed = count if index else prompt_len + count - 1
        return SequenceReport(prompt_len, count, 0, 0, 0, computed, 0, None)

    def stats(self):
        metrics = Metrics(Counter(steps=self.emitted))
        return EngineStats(
            self.info.num_pages - self.running, self.running, 0, 0, self.info.num_pages, self.running, 0,
            dict(metrics.counters), {}, {"cold": 1}, {}, metrics.histograms,
        )  # fmt: skip

    async def inspect(self, look):
        return look(CacheManager(1, self.info.page_size))

    async def flush(self):
        return 0

    async def check(self):
        return []

    async def advance_clock(self, seconds):
        pass

    async def inject_fault(self, site, at, delay_ms=None):
        if site != "forward":
            raise ValueError(f"site: got {site!r}, expected forward")
