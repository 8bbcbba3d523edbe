"""What linting costs: requests of agents, some with defects, on one core.

    python bench/lint.py [--requests 5000] [--tokens 4000] [--defects 0.2] [--memory]

Three passes over the same requests, each in a process of its own that is held to one core: rendering and tokenising alone; the
linter on requests whose ids are known already (what comes after tokenising); and the linter as it is used.  With ``--memory``
the peak of resident memory is said as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.linter import Linter
from agentcache.lint.prompt import PromptMaker
from agentcache.lint.records import Record
from agentcache.lint.rules import select_rules
from agentcache.model.hub import resolve_model
from agentcache.settings import default_home

Body = dict[str, Any]
WORDS = re.findall(
    r"\w+",
    "read the file before you change it and run every test after each step because the parser keeps state that no caller sees "
    "while a cache of pages holds keys and values for long prompts which agents send again with tools results plans and notes",
)
TURNS = 10
PAGE_SIZE = 16


def text(rng: random.Random, tokens: int) -> str:
    """About ``tokens`` tokens of prose."""
    words = [rng.choice(WORDS) for _ in range(max(1, int(tokens * 0.9)))]
    for place in range(9, len(words), 12):
        words[place] += "."
    return " ".join(words)


def tool(rng: random.Random, number: int) -> Body:
    properties = {name: {"type": "string", "description": text(rng, 8)} for name in ("path", "pattern", "mode")}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    return {
        "type": "function",
        "function": {"name": f"tool_{number}", "description": text(rng, 16), "parameters": schema},
    }


def requests(count: int, tokens: int, defects: float) -> Iterator[Body]:
    """Sessions of ten turns that share a system text and eight tools; the last turns are the longest.

    A session has a defect with the given probability: a clock in its system text, another order of its tools, or a message
    that is left out.
    """
    rng = random.Random(7)
    system, tools = text(rng, tokens // 3), [tool(rng, number) for number in range(8)]
    step = tokens // 3 * 2 // TURNS
    made, session = 0, 0
    while made < count:
        session += 1
        flaw = rng.choice(("clock", "order", "dropped")) if rng.random() < defects else ""
        history: list[Body] = []
        for turn in range(min(TURNS, count - made)):
            calls = [
                {"id": f"call_{session}_{turn}", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
            ]
            history.append({"role": "user", "content": f"Task {session}, step {turn}: {text(rng, step // 3)}"})
            head = f"It is 2026-05-04 10:{turn:02}:17. {system}" if flaw == "clock" else system
            shown = list(reversed(tools)) if flaw == "order" and turn % 2 else tools
            sent = history[2:] if flaw == "dropped" and turn == TURNS - 1 else history
            yield {"messages": [{"role": "system", "content": head}, *sent], "tools": shown}
            history.append({"role": "assistant", "content": text(rng, step // 3), "tool_calls": calls})
            result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": text(rng, step * 2)}
            history.append(result)
            made += 1


def records(options: argparse.Namespace) -> Iterator[Record]:
    for line, body in enumerate(requests(options.requests, options.tokens, options.defects), 1):
        yield Record("bench.jsonl", line, body)


def one_pass(options: argparse.Namespace) -> Body:
    """The pass that ``options.only`` names, in this process."""
    folder = resolve_model("smollm2", default_home()).folder
    maker = PromptMaker(ChatRenderer(Tokenizer.from_folder(folder)), PAGE_SIZE)
    given: list[Record] | Iterator[Record] = records(options)
    began = time.perf_counter()
    if options.only == "tokenising":
        tokens = sum(len(maker.make(record).tokens) for record in given)
        return {"seconds": time.perf_counter() - began, "tokens": tokens}
    if options.only == "after":
        made = ((record, maker.make(record)) for record in given)
        given = [replace(record, prompt_ids=prompt.tokens.ids(0, len(prompt.tokens))) for record, prompt in made]
        maker = PromptMaker(ChatRenderer(Tokenizer.from_folder(folder)), PAGE_SIZE)
        began = time.perf_counter()
    linter = Linter(maker, select_rules((), ()), PAGE_SIZE, keep_requests=False)
    linter.add_all(given)
    report = linter.report()
    return {
        "seconds": time.perf_counter() - began,
        "tokens": report.prompt_tokens,
        "findings": len(report.findings),
        "cached": report.cached_tokens,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--tokens", type=int, default=4_000, help="of a request, on average")
    parser.add_argument("--defects", type=float, default=0.2, help="share of sessions with one")
    parser.add_argument("--memory", action="store_true", help="only the linter as it is used, with its peak memory")
    parser.add_argument("--only", choices=("tokenising", "after", "whole"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(one_pass(options)))
        return
    table = Table(title=f"{options.requests:,} requests of about {options.tokens:,} tokens, one core")
    for heading in ("pass", "seconds", "ms a request", "tokens", "findings", "peak MiB"):
        table.add_column(heading, justify="left" if heading == "pass" else "right")
    for only in ("whole",) if options.memory else ("tokenising", "after", "whole"):
        figures = run(only)
        row = (figures["seconds"], 1000 * figures["seconds"] / options.requests)
        rest = (figures.get("findings", ""), f"{figures['peak_mib']:,.0f}" if "peak_mib" in figures else "")
        table.add_row(only, f"{row[0]:.1f}", f"{row[1]:.2f}", f"{figures['tokens']:,}", *map(str, rest))
    Console().print(table)


def run(only: str) -> Body:
    """One pass in a fresh process on one core."""
    command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--only", only]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None

    def pin() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})

    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=pin)
    figures: Body = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    main()
