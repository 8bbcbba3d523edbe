"""What the client's own look at a request costs, before it is sent.

    python bench/sdk_look.py

A request of about 4,000 tokens with 20 tools, in four situations.  Medians and 95th percentiles over 400 requests, each
built anew, as an agent does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache_sdk._look import ClientLook

Message = dict[str, Any]
RULES = "You are a careful engineer who reads a file as a whole and says what is wrong with it. " * 48
QUESTION = "Read the parser and say which of its branches no test enters. " * 3
ANSWER = "The branch for a closing bracket without an opening one is entered by no test at all. " * 4
REQUESTS = 400


def history(rules: str, turns: int = 22) -> list[Message]:
    messages = [{"role": "system", "content": rules}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn}. {QUESTION}"})
        messages.append({"role": "assistant", "content": f"{turn}. {ANSWER}"})
    return messages


def tool(number: int) -> dict[str, Any]:
    properties = {
        "path": {"type": "string", "description": "relative to the repository root"},
        "limit": {"type": "integer", "default": 100},
        "mode": {"type": "string", "enum": ["text", "bytes", "lines"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    name, description = f"tool_{number}", "Reads a file of the repository and returns a part of it."
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def counted() -> Iterator[list[Message]]:
    for number in range(REQUESTS):
        yield history(f"{number} {RULES}")


def growing() -> Iterator[list[Message]]:
    messages = history(RULES)
    for number in range(REQUESTS):
        messages = [*messages, {"role": "user", "content": f"More, {number}?"}]
        yield messages
        messages = messages[:-1] if number % 10 else [*messages, {"role": "assistant", "content": "Yes."}]


def forks() -> Iterator[list[Message]]:
    for number in range(REQUESTS):
        yield [*history(RULES), {"role": "user", "content": f"{number}: {QUESTION}"}]


def stamped() -> Iterator[list[Message]]:
    for number in range(REQUESTS):
        yield history(f"It is 10:{number // 60:02}:{number % 60:02}. {RULES}")


def milliseconds(requests: Callable[[], Iterator[list[Message]]]) -> list[float]:
    look, tools, took = ClientLook(), [tool(number) for number in range(20)], []
    for messages in requests():
        # New objects each time: what an object keeps of its own hash must not be counted as found.
        built, schemas = json.loads(json.dumps([messages, tools]))
        began = time.perf_counter()
        look.of_request(built, schemas, {"model": "any"})
        took.append((time.perf_counter() - began) * 1000)
    return took


def main() -> None:
    cases = {
        "a growing conversation": growing,
        "forks": forks,
        "a number at the head": counted,
        "a clock at the head": stamped,
    }
    table = Table(title="the client's look, milliseconds a request")
    for column in ("requests are", "median", "95th percentile"):
        table.add_column(column, justify="left" if column.startswith("requests") else "right")
    for name, requests in cases.items():
        took = milliseconds(requests)
        table.add_row(name, f"{median(took):.3f}", f"{quantiles(took, n=20)[-1]:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
