"""An engine that was built on the kernels: the same replies as on the processor's code, through every tier."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny_folder
import tiny_models
import torch

from agentcache.cache.hashing import namespace_root
from agentcache.engine.build import build_engine
from agentcache.engine.loop import AsyncEngine
from agentcache.request import SamplingParams, SequenceReport
from agentcache.settings import Settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llama")
    tiny_folder.write_tiny_folder(made, num_hidden_layers=2)
    return made


class Asking:
    """Requests of an engine, one after another or together."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self._loop = loop
        self._asked = 0

    def replies(self, *prompts: list[int], count: int = 3) -> list[tuple[list[int], SequenceReport]]:
        return self._loop.run_until_complete(self._all(prompts, count))

    async def _all(self, prompts: tuple[list[int], ...], count: int) -> list[Any]:
        return list(await asyncio.gather(*(self._one(prompt, count) for prompt in prompts)))

    async def _one(self, prompt: list[int], count: int) -> tuple[list[int], SequenceReport]:
        self._asked += 1
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        ids, report = [], None
        stream = self.engine.submit(prompt, params, root=namespace_root("t"), request_id=str(self._asked))
        async with stream:
            async for output in stream:
                assert output.error is None, output.error
                ids += output.token_ids
                report = output.report or report
        return ids, report


@contextmanager
def serving(folder: Path, kernels: bool, **settings: Any):
    device = "cuda" if torch.cuda.is_available() and kernels else "cpu"
    chosen = {"max_running": 2, "max_model_len": 40, "num_pages": 9, "page_size": 8, "prefill_chunk": 24, **settings}
    engine = build_engine(Settings(model=str(folder), device=device, dtype="float32", **chosen), kernels=kernels)
    loop = asyncio.new_event_loop()
    engine.start()
    try:
        yield Asking(engine, loop)
    finally:
        loop.run_until_complete(engine.stop())
        loop.close()


def test_replies_are_those_of_a_processor_cold_warm_and_back_from_host_memory_and_disk(
    folder: Path, tmp_path: Path
) -> None:
    first, second, third = (tiny_models.random_prompt(length, seed=length) for length in (26, 31, 29))
    asked = [(first,), (first, [*first[:20], 5, 6, 7]), (second, third), (first,)]
    answers = []
    for kernels in (False, True):
        with serving(folder, kernels, host_pages=40, disk_dir=tmp_path / str(kernels)) as asking:
            answers.append([asking.replies(*prompts) for prompts in asked])
            if kernels:
                assert sum(asking.engine.stats().evictions.values()) > 0
    ids = [[[reply for reply, _ in replies] for replies in own] for own in answers]
    assert ids[0] == ids[1]
    assert answers[1][1][0][1].cached_tokens == 25
    assert answers[1][3][0][1].tier_tokens.get("host", 0) > 0
    with serving(folder, True, disk_dir=tmp_path / "True") as asking:
        [(reply, report)] = asking.replies(first)
        assert reply == ids[0][0][0]
        assert report.tier_tokens.get("disk", 0) >= 24


@pytest.mark.kernels
def test_warm_equals_cold_in_the_batch_invariant_mode_whoever_else_is_served(folder: Path) -> None:
    prompt, other = tiny_models.random_prompt(30, seed=3), tiny_models.random_prompt(22, seed=4)
    with serving(folder, True, batch_invariant=True, num_pages=12) as asking:
        [(cold, report)] = asking.replies(prompt)
        assert report.cached_tokens == 0
        (warm, again), _ = asking.replies(prompt, other)
        assert again.cached_tokens == 29
        assert warm == cold
