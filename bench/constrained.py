"""What holding replies to a grammar costs: compiling, masks, and their application to a step's logits.

    OMP_NUM_THREADS=1 python bench/constrained.py [--model smollm2] [--rows 64]

Replies are drawn from random logits, with quotes and brackets made likelier so that they end.  Times are of one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agentcache.cache.tokens import PagedTokens
from agentcache.chat.grammars import GrammarCompiler, LlGrammar, json_rule
from agentcache.chat.tokenizer import Tokenizer
from agentcache.model.hub import resolve_model
from agentcache.model.sampler import Scratch, sample
from agentcache.request import Request, SamplingParams, Sequence

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
        "mode": {"enum": ["read", "write", "append"]},
        "options": {"type": "object", "properties": {"encoding": {"type": "string"}, "follow": {"type": "boolean"}}},
    },
    "required": ["path", "mode"],
    "additionalProperties": False,
}


def tools(count: int) -> str:
    """Lark text of a call to one of ``count`` tools."""
    names = [f"call_{i}" for i in range(count)]
    rules = [f"start: {' | '.join(names)}"]
    for i, name in enumerate(names):
        opening = json.dumps(f'<tool_call>\n{{"name": "tool_{i}", "arguments": ')
        rules.append(f'{name}: {opening} args_{i} "}}\\n</tool_call>"')
        rules.append(f"args_{i}: {json_rule(SCHEMA, False, param='tools')}")
    return "\n".join(rules)


def enum_of(count: int) -> dict[str, Any]:
    return {"enum": [f"value {i}" for i in range(count)]}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:8.3f} ms"


class Masks:
    """Draws replies and times each mask and each step forward."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        ids = range(min(vocab, tokenizer.vocab_size))
        closing = [bool(set(b'"}],') & set(tokenizer.token_bytes(token))) for token in ids]
        self._likelier = 8.0 * np.array(closing + [False] * (vocab - len(closing)))
        self._ends = tokenizer.eos_token_ids
        self._vocab = vocab

    def time(self, grammar: LlGrammar, replies: int = 20, most: int = 200) -> tuple[list[float], list[float]]:
        masks, steps = [], []
        for seed in range(replies):
            random, constraint = np.random.default_rng(seed), grammar.start()
            for _ in range(most):
                began = time.perf_counter()
                mask = constraint.mask()
                masks.append(time.perf_counter() - began)
                bits = np.unpackbits(mask.view(np.uint8), count=self._vocab, bitorder="little")
                scores = random.gumbel(size=self._vocab) + self._likelier
                token = int(np.where(bits, scores, -np.inf).argmax())
                began = time.perf_counter()
                constraint.advance(token)
                steps.append(time.perf_counter() - began)
                if token in self._ends:
                    break
        return masks, steps


def application(grammar: LlGrammar, vocab: int, rows: int, params: SamplingParams) -> tuple[float, float]:
    """Median seconds of ``sample`` for ``rows`` rows, free and constrained with masks that were computed before."""
    logits, scratch = torch.randn(rows, vocab), Scratch()
    sequences = []
    for row in range(rows):
        request = Request(str(row), [1], params, b"", lambda _: None)
        sequences.append(Sequence(request, 0, PagedTokens([1], 16, b""), 1, 100, row))
    found = []
    for constrained in (False, True):
        for sequence in sequences:
            sequence.constraint = grammar.start() if constrained else None
        times = []
        for _ in range(15):
            began = time.perf_counter()
            sample(logits, sequences, scratch)
            times.append(time.perf_counter() - began)
        found.append(statistics.median(times))
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--home", type=Path, default=Path.home() / ".cache" / "agentcache")
    parser.add_argument("--rows", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_folder(resolve_model(args.model, args.home).folder)
    vocab = tokenizer.vocab_size
    compiler = GrammarCompiler(tokenizer, vocab)
    began = time.perf_counter()
    compiler.regex("a")
    print(f"vocabulary of {vocab:,} tokens read, once: {milliseconds(time.perf_counter() - began)}")

    masks = Masks(tokenizer, vocab)
    print(f"{'':24}     compile |  mask: median        p99         max | advance: median")
    texts = {
        "json_object": "start: " + json_rule({"type": "object"}, True, param="schema"),
        "a tool's schema": "start: " + json_rule(SCHEMA, True, param="schema"),
        "a call of 1 of 40 tools": tools(40),
        "an enum of 5,000": "start: " + json_rule(enum_of(5000), True, param="schema"),
    }
    for name, text in texts.items():
        began = time.perf_counter()
        grammar = compiler.lark(text)
        compiled = time.perf_counter() - began
        took, steps = masks.time(grammar)
        figures = (statistics.median(took), float(np.quantile(took, 0.99)), max(took))
        print(
            f"{name:24} {milliseconds(compiled)} | {' '.join(map(milliseconds, figures))} | "
            f"{milliseconds(statistics.median(steps))}"
        )

    grammar = compiler.json_schema(SCHEMA)
    print(f"sample() for {args.rows} rows of {vocab:,} logits, free -> with masks at hand")
    for name, params in (
        ("greedy", SamplingParams(temperature=0.0)),
        ("temperature 1", SamplingParams()),
        ("top_p 0.9", SamplingParams(top_p=0.9)),
    ):
        free, held = application(grammar, vocab, args.rows, params)
        print(f"  {name:16} {milliseconds(free)} -> {milliseconds(held)}")


if __name__ == "__main__":
    main()
