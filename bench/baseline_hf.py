"""The same conversations through Hugging Face ``generate``: one request at a time, nothing kept between requests.

    python bench/baseline_hf.py

Prints the JSON line of ``bench/agents.py``.  float32, SDPA attention, greedy, every core.  Inside one request
``generate`` keeps its own keys and values, as it does by default.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils.logging import disable_progress_bar

# Run as a file, Python puts this folder on its path, not the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agentcache.errors import UnsupportedModelError
from agentcache.model.hub import resolve_model
from agentcache.settings import default_home
from bench.cli import add_workload_options, progress_bar, spec_from
from bench.report import Run, TurnRecord
from bench.workload import Message, TokenCounter, Workload, WorkloadError, build_workload


class TokenClock:
    """A streamer for ``generate`` that notes when each new token came."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self._saw_prompt = False

    def put(self, value: torch.Tensor) -> None:
        # ``generate`` hands over the prompt first.
        if self._saw_prompt:
            self.arrivals.append(time.perf_counter())
        self._saw_prompt = True

    def end(self) -> None:
        """Nothing is held back."""


class Baseline:
    """A model and its tokenizer as Hugging Face loads them.

    What it generated goes into the next prompt as the tokens that it drew, as the server does it: the text of a reply may be
    tokenised otherwise than it was generated, and both sides must read the same prompts.

    Args:
        folder: a model in Hugging Face layout.
        output_tokens: length of every reply; end-of-text tokens do not end it.
    """

    def __init__(self, folder: Path, output_tokens: int) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self._model.generation_config = GenerationConfig(
            do_sample=False, max_new_tokens=output_tokens, eos_token_id=None, pad_token_id=0
        )
        self._text = ""
        self._ids: list[int] = []

    def reply(self, messages: list[Message], agent: int, turn: int) -> TurnRecord:
        """One request, from its messages to the text of its reply."""
        clock = TokenClock()
        sent = time.perf_counter()
        ids = self._prompt(messages)
        length = len(ids)
        prompt = torch.tensor([ids])
        new = self._model.generate(prompt, attention_mask=torch.ones_like(prompt), streamer=clock)[0, length:]
        text = self._tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        self._text += text
        self._ids = ids + new.tolist()
        return TurnRecord(
            agent=agent,
            turn=turn,
            reply=text,
            ttft=clock.arrivals[0] - sent,
            gaps=tuple(b - a for a, b in pairwise(clock.arrivals)),
            prompt_tokens=length,
            cached_tokens=0,
            output_tokens=len(new),
        )

    def _prompt(self, messages: list[Message]) -> list[int]:
        """Token ids of the conversation; of what was said before, those that were read and drawn."""
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        goes_on = bool(self._ids) and text.startswith(self._text)
        ids, start = (self._ids, len(self._text)) if goes_on else ([], 0)
        self._text = text
        return [*ids, *self._tokenizer(text[start:], add_special_tokens=False)["input_ids"]]


def run_baseline(baseline: Baseline, workload: Workload, progress: Progress) -> Run:
    """Agent after agent, turn after turn.  The model is warm before the clock starts."""
    spec = workload.spec
    baseline.reply([{"role": "user", "content": "Say hello."}], agent=0, turn=0)
    task = progress.add_task("requests", total=spec.agents * spec.turns)
    records: list[TurnRecord] = []
    started = time.perf_counter()
    for agent in range(spec.agents):
        messages = workload.opening(agent)
        for turn in range(spec.turns):
            if turn:
                messages.append(workload.user_message(agent, turn))
            record = baseline.reply(messages, agent, turn)
            messages.append({"role": "assistant", "content": record.reply})
            records.append(record)
            progress.advance(task)
    wall = time.perf_counter() - started
    return Run("transformers generate", workload, wall, tuple(records))


def folder_counter(folder: Path) -> TokenCounter:
    """Measure text with the tokenizer of a model folder."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _printer(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, markup=False, highlight=False)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for a bad command line or a model that cannot be loaded."""
    parser = argparse.ArgumentParser(
        description="The agent workload through Hugging Face generate; prints one JSON line."
    )
    parser.add_argument("--model", default="smollm2", help="as for agentcache serve; default: %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: every core")
    parser.add_argument("--records", type=Path, help="write every request with its reply to this file")
    add_workload_options(parser)
    args = parser.parse_args(argv)
    console = Console(stderr=True)
    torch.set_num_threads(args.threads)
    disable_progress_bar()  # one bar is enough
    try:
        folder = resolve_model(args.model, default_home(), progress=_printer(console)).folder
        workload = (
            Workload.load(args.workload) if args.workload else build_workload(spec_from(args), folder_counter(folder))
        )
    except (WorkloadError, UnsupportedModelError) as error:
        console.print(f"bench/baseline_hf.py: {error}", style="red", markup=False, highlight=False)
        return 2
    baseline = Baseline(folder, workload.spec.output_tokens)
    with progress_bar(console) as progress:
        run = run_baseline(baseline, workload, progress)
    return run.print_and_save(args.records)


if __name__ == "__main__":
    sys.exit(main())
