"""What the linter's tests share: a tokenizer folder, chats with and without defects, and a plain recount of a warm cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_tokenizer import write_tokenizer

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer as ChatTokenizer

INSTRUCTIONS = (
    "You are a careful engineer. Read a file before you change it, run the tests after each change, and say plainly what "
    "you did and what you did not do. Generated code is never edited by hand; find its source and edit that instead. "
)
STAMPS = {
    "second": ("2026-11-29 10:30:05", "2026-11-29 10:31:47", "2026-11-29 10:33:12"),
    "minute": ("2026-11-29 10:30", "2026-11-29 10:31", "2026-11-29 10:33"),
    "day": ("2026-11-29", "2026-11-30", "2026-12-01"),
}

Body = dict[str, Any]


def write_lint_tokenizer(folder: Path) -> Path:
    """A tokenizer of 700 tokens with a ChatML template; no model."""
    corpus = [INSTRUCTIONS, "system user assistant tool It is now 2026-11-29 10:30:05"]
    return write_tokenizer(folder, corpus, 700, eos_token="<|im_end|>")


def chat(system: Callable[[int], str], *, turns: int = 3, task: str = "Fix the parser.") -> list[Body]:
    """The requests of one growing chat; ``system(turn)`` is the system text that the program sends with that turn."""
    history: list[Body] = []
    requests = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"{task} Step {turn}, please."})
        requests.append({"model": "m", "messages": [{"role": "system", "content": system(turn)}, *history]})
        history.append({"role": "assistant", "content": f"Step {turn} is done and the tests pass."})
    return requests


def write_jsonl(file: Path, requests: Sequence[Any]) -> Path:
    file.write_text("".join(json.dumps(request) + "\n" for request in requests), "utf-8")
    return file


def ids_of(folder: Path, requests: Sequence[Body]) -> list[list[int]]:
    """Token ids of each request."""
    renderer = ChatRenderer(ChatTokenizer.from_folder(folder))
    return [renderer.render(body["messages"], tools=body.get("tools")).token_ids for body in requests]


def recount(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Cached tokens of each prompt, counted the slow way: against every earlier prompt."""
    cached = []
    for index, prompt in enumerate(prompts):
        best = 0
        for earlier in prompts[:index]:
            common = 0
            while common < min(len(prompt), len(earlier)) and prompt[common] == earlier[common]:
                common += 1
            best = max(best, common)
        cached.append(min(best, len(prompt) - 1))
    return cached
