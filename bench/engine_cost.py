"""Processor seconds of the agent workload's shape inside this process, without HTTP: for comparing two versions of the code.

    PYTHONPATH=kernels:. python bench/engine_cost.py [--agents 6] [--shared-tokens 1700] [--threads 1]

One JSON line a run.  Processor time of one thread is what neighbours on a machine disturb least; to compare with another
version, check it out into a folder of its own and run this file with that folder (and its ``kernels``) as ``PYTHONPATH``, a
few times in turns.  Prompts are random token ids, so the two versions do the same work; replies end after a fixed number of
tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time

from agentcache.engine.build import build_engine
from agentcache.engine.loop import AsyncEngine
from agentcache.request import SamplingParams
from agentcache.settings import Settings


async def agent(engine: AsyncEngine, args: argparse.Namespace, number: int) -> int:
    """All turns of one agent; how many tokens its last prompt had."""
    params = SamplingParams(temperature=0, max_tokens=args.output_tokens, ignore_eos=True)
    history = tokens(args.shared_tokens, seed=0)
    for turn in range(args.turns):
        history += tokens(args.new_tokens, seed=1 + number * args.turns + turn)
        prompt = list(history)
        stream = engine.submit(prompt, params, root=b"bench", request_id=f"{number}-{turn}")
        async with stream:
            async for output in stream:
                history += output.token_ids
    return len(prompt)


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(100, 40_000), k=count)


async def measure(args: argparse.Namespace) -> dict[str, float]:
    settings = Settings(model=args.model, device="cpu", dtype="float32", threads=args.threads, num_pages=2000)
    engine = build_engine(settings)
    engine.start()
    try:
        began, busy = time.perf_counter(), time.process_time()
        longest = max(await asyncio.gather(*(agent(engine, args, number) for number in range(args.agents))))
        return {
            "processor_s": round(time.process_time() - busy, 2),
            "wall_s": round(time.perf_counter() - began, 2),
            "computed_tokens": engine.stats().counters["computed_tokens"],
            "longest_prompt": longest,
        }
    finally:
        await engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    sizes = {"agents": 6, "turns": 4, "shared_tokens": 1700, "new_tokens": 130, "output_tokens": 24}
    for name, value in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, help="default: %(default)s")
    args = parser.parse_args()
    result = asyncio.run(measure(args))
    print(json.dumps({name: getattr(args, name) for name in ("threads", *sizes)} | result), flush=True)


if __name__ == "__main__":
    main()
