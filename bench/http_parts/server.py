"""A server with the real HTTP side, tokenizer, template, scheduler and cache, on a model that rests in place of computing.

Run as a process of its own; prints its address, and on SIGTERM writes when the engine got and finished each request.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

sys.path.append(str(Path(__file__).resolve().parents[2]))
from agentcache.cache.manager import CacheManager
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.engine.loop import AsyncEngine, EngineInfo
from agentcache.engine.streams import OutputStream
from agentcache.model.hub import resolve_model
from agentcache.request import Output, Sequence, TokenLogprob
from agentcache.scheduler.plan import StepPlan, StepResult
from agentcache.scheduler.scheduler import Limits, Scheduler
from agentcache.server.app import create_app
from agentcache.server.serve import Server, address_of, listen
from agentcache.settings import Settings, default_home
from bench.http_parts.paced import PacedEngine

PAGE = 16
PAGES = 2048
CONTEXT = 8192
VOCAB = 49_152


@dataclass
class RestingRunner:
    """Implements ``scheduler.plan.Runner``: sequences say the words of a text, and a step takes ``step_s``."""

    words: list[int]
    step_s: float

    def run(self, plan: StepPlan) -> StepResult:
        samples = [
            [TokenLogprob(self.words[(s.seed + chunk.end) % len(self.words)], -1.0) for s in chunk.samples]
            for chunk in plan.chunks
        ]
        time.sleep(self.step_s)
        return StepResult(samples, [None for _ in plan.chunks])


@dataclass(slots=True)
class TimedCore(EngineCore):
    """Notes when it had finished each request, in seconds of the machine's monotonic clock."""

    ended: dict[str, float] = field(default_factory=dict)

    def _end(self, sequence: Sequence, output: Output) -> None:
        EngineCore._end(self, sequence, output)
        self.ended[sequence.request.request_id] = time.monotonic()


class TimedEngine(AsyncEngine):
    """Notes when the HTTP side handed each request over; it may then wait for a step to end."""

    handed_over: dict[str, float]

    def submit(self, *args: Any, **kwargs: Any) -> OutputStream:
        self.handed_over[kwargs["request_id"]] = time.monotonic()
        return super().submit(*args, **kwargs)


def make_paced(settings: Settings, step_s: float) -> PacedEngine:
    """An engine that takes no thread and no processor time to speak of: what is left is the HTTP side."""
    tokenizer = Tokenizer.from_folder(resolve_model(settings.model, default_home()).folder)
    words = tokenizer.encode(Path(__file__).read_text("utf-8"))
    info = EngineInfo("paced", CONTEXT, PAGE, PAGES, VOCAB, settings.max_running, CONTEXT, 0, "none")
    return PacedEngine(info, tokenizer, ChatRenderer(tokenizer), words, step_s)


def make_engine(settings: Settings, step_s: float) -> tuple[TimedEngine, TimedCore]:
    """The real scheduler and cache on a thread of its own; all streams get their tokens at the end of a step."""
    tokenizer = Tokenizer.from_folder(resolve_model(settings.model, default_home()).folder)
    words = tokenizer.encode(Path(__file__).read_text("utf-8"))
    core = TimedCore(
        Scheduler(CacheManager(PAGES, PAGE), Limits(4096, settings.max_running, settings.max_waiting)),
        RestingRunner(words, step_s),
        lambda stop, shown: TextStream(tokenizer, stop, shown=shown),
        eos_token_ids=frozenset(),
        bounds=Bounds(CONTEXT, CONTEXT, VOCAB, settings.max_running),
        seeds=random.Random(0),
    )
    info = EngineInfo("resting", CONTEXT, PAGE, PAGES, VOCAB, settings.max_running, CONTEXT, 0, "none")
    engine = TimedEngine(
        core, info=info, settings=settings, tokenizer=tokenizer, renderer=ChatRenderer(tokenizer), root_base=("bench",)
    )
    engine.handed_over = {}
    return engine, core


def main(kind: str, step_ms: float, times_file: str) -> None:
    settings = Settings(model="smollm2", max_running=64, access_log="off")
    if kind == "paced":
        paced = make_paced(settings, step_ms / 1000)
        _serve(cast(AsyncEngine, paced), settings)
        times = paced.times
    else:
        engine, core = make_engine(settings, step_ms / 1000)
        _serve(engine, settings)
        times = {name.partition("-")[0]: (engine.handed_over[name], ended) for name, ended in core.ended.items()}
    Path(times_file).write_text(json.dumps(times), "utf-8")


def _serve(engine: AsyncEngine, settings: Settings) -> None:
    listener = listen("127.0.0.1", 0)
    server = Server(create_app(engine, settings), settings)
    server.on_listening = lambda: print(address_of(listener), flush=True)
    gc.freeze()  # as `agentcache serve` does: what is made at start is never looked through again
    server.run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
