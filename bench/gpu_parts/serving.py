"""The engine end to end: agents that share a beginning, turn by turn, on random weights of Llama 3 8B's shape."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from agentcache.cache.hashing import namespace_root
from agentcache.engine.build import build_engine
from agentcache.engine.loop import AsyncEngine
from agentcache.request import SamplingParams
from agentcache.settings import Settings
from bench.gpu_parts.notes import Notes

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
_TINY = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Work:
    """The agent workload of ``bench/agents.py``, in token ids."""

    agents: int = 6
    turns: int = 4
    shared_tokens: int = 1700
    new_tokens: int = 130
    output_tokens: int = 24

    @property
    def replies(self) -> int:
        return self.agents * self.turns


@dataclass(frozen=True)
class Turn:
    number: int
    to_first_token: float


def cache_on(notes: Notes) -> None:
    _serve(notes, prefix_cache=True)


def cache_off(notes: Notes) -> None:
    _serve(notes, prefix_cache=False)


def _serve(notes: Notes, prefix_cache: bool) -> None:
    work = Work(2, 2, 16, 5, 2) if notes.interpret else Work()
    with tempfile.TemporaryDirectory() as folder:
        _write_model(Path(folder), LLAMA_8B | (_TINY if notes.interpret else {}))
        chosen: dict[str, Any] = {"device": "cuda", "dtype": "bfloat16", "prefill_chunk": 2048}
        if notes.interpret:
            chosen = {"device": "cpu", "dtype": "float32", "num_pages": 30, "page_size": 8, "prefill_chunk": 16}
            chosen |= {"max_running": 2}
        settings = Settings(model=folder, load_format="dummy", prefix_cache=prefix_cache, **chosen)
        began = time.perf_counter()
        engine = build_engine(settings, kernels=True)
        notes.figure("start: load, compile, capture", time.perf_counter() - began, "s")
        notes.figure("pages in the pool", engine.info.num_pages, "")
        asyncio.run(_measure(notes, engine, work))


async def _measure(notes: Notes, engine: AsyncEngine, work: Work) -> None:
    engine.start()
    try:
        await _turn(engine, [1, 2, 3], 1, "warm-up", 0)
        began = time.perf_counter()
        turns = [
            turn for own in await asyncio.gather(*(_agent(engine, work, n) for n in range(work.agents))) for turn in own
        ]
        took = time.perf_counter() - began
        notes.figure("agents together: whole workload", took, "s")
        notes.figure("agents together: output", work.replies * work.output_tokens / took, "tokens/s")
        first = [turn.to_first_token for turn in turns if turn.number == 0]
        later = [turn.to_first_token for turn in turns if turn.number > 0]
        notes.figure("agents together: first turn to first token, median", 1e3 * statistics.median(first), "ms")
        notes.figure("agents together: later turns to first token, median", 1e3 * statistics.median(later), "ms")
        alone = await _agent(engine, work, work.agents)
        later = [turn.to_first_token for turn in alone if turn.number > 0]
        notes.figure("one agent: later turns to first token, median", 1e3 * statistics.median(later), "ms")
        few, many = (2, 4) if notes.interpret else (8, 136)
        spent = []
        for count in (few, many):
            began = time.perf_counter()
            await _turn(engine, _tokens(work.new_tokens, 7), count, f"long {count}", 0)
            spent.append(time.perf_counter() - began)
        notes.figure("one agent: time of a token", 1e3 * (spent[1] - spent[0]) / (many - few), "ms")
        notes.figure("evictions", sum(engine.stats().evictions.values()), "")
    finally:
        await engine.stop()


async def _agent(engine: AsyncEngine, work: Work, number: int) -> list[Turn]:
    history = _tokens(work.shared_tokens, 0)
    turns = []
    for turn in range(work.turns):
        history += _tokens(work.new_tokens, 1 + number * work.turns + turn)
        ids, measured = await _turn(engine, history, work.output_tokens, f"{number}-{turn}", turn)
        history += ids
        turns.append(measured)
    return turns


async def _turn(engine: AsyncEngine, prompt: list[int], count: int, name: str, number: int) -> tuple[list[int], Turn]:
    params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
    began = time.perf_counter()
    first = 0.0
    ids: list[int] = []
    stream = engine.submit(list(prompt), params, root=namespace_root("check"), request_id=name)
    async with stream:
        async for output in stream:
            if output.error is not None:
                raise RuntimeError(f"request {name}: {output.error}")
            if not ids:
                first = time.perf_counter() - began
            ids += output.token_ids
    return ids, Turn(number, first)


def _tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(256), k=count)


def _write_model(folder: Path, config: dict[str, Any]) -> None:
    """``config.json``, and a tokenizer that knows bytes: the weights are random, so nobody reads the text."""
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {f"<{index}>": index for index in range(len(vocabulary), config["vocab_size"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}), "utf-8")
