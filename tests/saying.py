"""A real server on a model that says what it is told to: real tokenizer, template, scheduler, cache and HTTP, no arithmetic."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live import LiveServer, live_engine

from agentcache.cache.manager import CacheManager
from agentcache.chat.detokenizer import TextStream
from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.engine.bounds import Bounds
from agentcache.engine.core import EngineCore
from agentcache.engine.loop import AsyncEngine, EngineInfo
from agentcache.model.hub import resolve_model
from agentcache.request import TokenLogprob
from agentcache.scheduler.plan import StepPlan, StepResult
from agentcache.scheduler.scheduler import Limits, Scheduler
from agentcache.settings import Settings, default_home

PAGE, PAGES, CONTEXT, VOCAB = 16, 1024, 4096, 49_152
END = 2
"""SmolLM2's ``<|im_end|>``."""


@dataclass
class SayingRunner:
    """Implements ``scheduler.plan.Runner``: every sequence draws ``reply`` from its first token on, then the end token."""

    reply: list[int] = field(default_factory=list)

    def run(self, plan: StepPlan) -> StepResult:
        samples = [[TokenLogprob(self._token(s.output_len), -1.0) for s in chunk.samples] for chunk in plan.chunks]
        return StepResult(samples, [None for _ in plan.chunks])

    def _token(self, place: int) -> int:
        return self.reply[place] if place < len(self.reply) else END


@dataclass(frozen=True)
class Saying:
    server: LiveServer
    runner: SayingRunner
    tokenizer: Tokenizer

    def says(self, reply: str | list[int]) -> None:
        """What every reply is from now on, as text (control tokens are parsed) or as ids."""
        self.runner.reply = self.tokenizer.encode(reply) if isinstance(reply, str) else reply

    def whole(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return self.server.chat(messages, **fields)

    def streamed(self, messages: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
        """Messages put together from the chunks of a stream, one a choice, with their finish reasons."""
        from live import stream

        body = {"messages": messages, "temperature": 0, **fields}
        return put_together(stream(self.server, "/v1/chat/completions", body))


def put_together(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What clients make of a stream: content, reasoning and calls joined by choice; checks ids, names and indexes."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for piece in chunk["choices"]:
            made = choices.setdefault(piece["index"], {"content": "", "reasoning_content": "", "tool_calls": []})
            delta = piece["delta"]
            made["content"] += delta.get("content") or ""
            made["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(made["tool_calls"]), "calls are counted from 0"
                    made["tool_calls"].append(
                        {"id": call["id"], "type": "function", "function": dict(call["function"])}
                    )
                else:
                    assert "name" not in call["function"], "a name comes once"
                    made["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            if piece["finish_reason"] is not None:
                made["finish_reason"] = piece["finish_reason"]
    return [choices[index] for index in sorted(choices)]


@contextmanager
def saying_server(folder: Path, template: str | None = None, **settings: Any) -> Iterator[Saying]:
    """SmolLM2's tokenizer with its own template or ``template``; ``folder`` is scratch."""
    source = resolve_model("smollm2", default_home()).folder
    for path in source.glob("*token*.json"):
        shutil.copy(path, folder)
    for path in [*source.glob("config.json"), *source.glob("generation_config.json"), *source.glob("*.jinja")]:
        shutil.copy(path, folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    tokenizer = Tokenizer.from_folder(folder)
    runner = SayingRunner()
    settings.setdefault("home", folder)  # snapshots of tests are no business of the user's own home
    chosen = Settings(model="smollm2", enable_test_hooks=True, access_log="off", **settings)
    core = EngineCore(
        Scheduler(CacheManager(PAGES, PAGE), Limits(512, chosen.max_running, chosen.max_waiting)),
        runner,
        lambda stop, shown: TextStream(tokenizer, stop, shown=shown),
        eos_token_ids=frozenset([END]),
        bounds=Bounds(CONTEXT, CONTEXT, VOCAB, chosen.max_running),
        seeds=random.Random(0),
    )
    info = EngineInfo("saying", CONTEXT, PAGE, PAGES, VOCAB, chosen.max_running, CONTEXT, 0, "none")
    engine = AsyncEngine(
        core, info=info, settings=chosen, tokenizer=tokenizer, renderer=ChatRenderer(tokenizer), root_base=("saying",)
    )
    with live_engine(engine, chosen) as server:
        yield Saying(server, runner, tokenizer)


def arguments_of(call: dict[str, Any]) -> Any:
    return json.loads(call["function"]["arguments"])
