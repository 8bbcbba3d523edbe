"""What agents' turns cost on a cluster, and who answered them: a line for each turn.

    python examples/cluster/turns.py --url http://127.0.0.1:8101 --url http://127.0.0.1:8102    # replicas.toml
    python examples/cluster/turns.py --url http://127.0.0.1:8100                                # gateway.toml, ray.toml

With several addresses each turn goes to the next one, as a balancer that knows nothing would do it: what the store brings is seen
then.  With one address whoever listens there chooses: what its routing brings is seen.  ``--sessions`` sends turns of sessions in
place of whole histories; ``--sessions-at`` is a server to make them at where the address has no such route (gateways).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console

SYSTEM = """You are a careful software engineer who works in a checkout of a repository. You read before you write, you run the
tests before you say that something works, and you say plainly when you do not know. You get a task, or the result of the tool
that you called last. You say in one or two short sentences what the result tells you about the task, and then you call one tool.

Tools: read_file(path, start, count) returns numbered lines; search(pattern, folder) returns lines that match, at most fifty of
them; run_tests(path) runs the tests below a path and returns the last lines of their output; write_file(path, text) replaces a
file.

Rules: never invent the content of a file. Change as little as the task needs. A test that fails before your change and passes
after it is worth more than an explanation. When a result contradicts what you said before, say so. When you are done, answer
without a call."""

TASKS = (
    "Find out why the parser accepts an empty list.",
    "Say which functions of the cache module other modules rely on.",
    "Look for state that two threads could share.",
    "Explain what happens when the input file is empty.",
)
RESULTS = (
    "read_file: 12 lines, a loop over the tokens that stops at the first comma and returns what it has.",
    "search: 3 lines match, two of them in tests and one in the command line.",
    "run_tests: 41 passed, 1 failed: test_empty_list expected ValueError and got None.",
    "write_file: done, 4 lines changed.",
)


COLUMNS = {
    "agent": ">5",
    "turn": ">4",
    " replica": "<8",
    "prompt": ">7",
    "cached": ">7",
    "computed": ">9",
    "seconds": ">7",
}
"""Of the table, and how each is aligned.  Where pages were found comes last: two tiers still fit into 80 characters."""
_NO_ROUTE = (404, 405)


class TurnFailedError(Exception):
    """A turn that was not answered; the message has the address, and what was said there."""


@dataclass
class Agent:
    """``session`` is ``None`` for one that sends its whole history each time."""

    number: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None


@dataclass(frozen=True)
class Client:
    http: httpx.Client
    model: str
    max_tokens: int

    def turn(self, url: str, agent: Agent, text: str) -> tuple[str, dict[str, Any]]:
        """Ask, and remember the answer; returns who answered, and the ``agentcache`` object of the answer.

        Raises:
            TurnFailedError: it was refused, or nobody is there.
        """
        news = {"role": "user", "content": text}
        sent = [*agent.messages, news] if agent.session is None else [news]
        body: dict[str, Any] = {"model": self.model, "messages": sent, "max_tokens": self.max_tokens, "temperature": 0}
        headers = {}
        if agent.session is not None:
            body["session"] = headers["x-session-id"] = agent.session  # gateways route by the header
        answer = _ask(self.http, f"{url}/v1/chat/completions", body, headers)
        reply = answer.json()
        if agent.session is None:
            agent.messages += [news, reply["choices"][0]["message"]]
        return answer.headers.get("x-agentcache-replica", "one"), reply["agentcache"]

    def open(self, url: str, agent: Agent) -> None:
        """Give the agent a session.

        Raises:
            TurnFailedError: it was refused, or nobody is there.
        """
        made = _ask(self.http, f"{url}/v1/sessions", {"messages": agent.messages}, {}, accepted=_NO_ROUTE)
        if made.status_code in _NO_ROUTE:
            raise TurnFailedError(
                f"no sessions are made at {url}, such as by a gateway: name a server behind it, "
                "such as --sessions-at http://127.0.0.1:8101"
            )
        agent.session, agent.messages = made.json()["id"], []


def first_model(http: httpx.Client, url: str) -> str:
    """The first model that is served.

    Raises:
        TurnFailedError: nobody is there, or it is no such server.
    """
    answer = _ask(http, f"{url}/v1/models", None, {})
    try:
        return str(answer.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise TurnFailedError(f"{url}/v1/models: got {answer.text[:300]!r}, expected a list of models") from error


def _ask(
    http: httpx.Client, url: str, body: dict[str, Any] | None, headers: dict[str, str], accepted: tuple[int, ...] = ()
) -> httpx.Response:
    """
    Args:
        body: ``None``: it is a GET.
        accepted: statuses that are no failures.
    """
    try:
        answer = http.request("GET" if body is None else "POST", url, json=body, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TurnFailedError(f"{url}: {error or type(error).__name__}") from error
    if not answer.is_success and answer.status_code not in accepted:
        raise TurnFailedError(f"{url}: {answer.status_code}: {answer.text[:300]}")
    return answer


def run(client: Client, options: argparse.Namespace, console: Console) -> None:
    """
    Raises:
        TurnFailedError: a turn was not answered.
    """
    agents = [Agent(number, [{"role": "system", "content": SYSTEM}]) for number in range(options.agents)]
    if options.sessions:
        for agent in agents:
            client.open(options.sessions_at or options.url[0], agent)
    _print(console, "┃", (*COLUMNS, " found in"))
    totals: Counter[str] = Counter()
    for turn in range(options.turns):
        for agent in agents:
            text = TASKS[agent.number % len(TASKS)] if turn == 0 else RESULTS[(agent.number + turn) % len(RESULTS)]
            url = options.url[(agent.number + turn) % len(options.url)]
            began = time.perf_counter()
            with console.status(f"agent {agent.number}, turn {turn}"):
                replica, report = client.turn(url, agent, f"{text} (agent {agent.number}, turn {turn})")
            seconds = time.perf_counter() - began
            totals += Counter({name: report[name] for name in ("prompt_tokens", "cached_tokens")})
            _print(console, "│", (str(agent.number), str(turn), f" {replica}", *_cells(report, seconds)))
    share = totals["cached_tokens"] / totals["prompt_tokens"]
    console.print(f"{share:.1%} of {totals['prompt_tokens']:,} prompt tokens were cached", highlight=False)


def _print(console: Console, bar: str, cells: Sequence[str]) -> None:
    """One line of the table, as soon as it is known."""
    padded = (f"{cell:{align}}" for cell, align in zip(cells, (*COLUMNS.values(), ""), strict=True))
    console.print(bar + bar.join(padded), markup=False, highlight=False, soft_wrap=True)


def _cells(report: dict[str, Any], seconds: float) -> tuple[str, ...]:
    found = ", ".join(f"{name} {tokens:,}" for name, tokens in report["tiers"].items() if tokens)
    figures = (f"{report[name]:,}" for name in ("prompt_tokens", "cached_tokens", "computed_tokens"))
    return (*figures, f"{seconds:.2f}", f" {found or '-'}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What agents' turns cost on a cluster, and who answered them.")
    parser.add_argument(
        "--url", action="append", help="address to send turns to; repeatable (default: http://127.0.0.1:8100)"
    )
    parser.add_argument("--agents", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--turns", type=int, default=4, help="of each agent (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=24, help="of a reply (default: %(default)s)")
    parser.add_argument("--sessions", action="store_true", help="turns of sessions in place of whole histories")
    parser.add_argument("--sessions-at", metavar="URL", help="server to make sessions at (default: the first --url)")
    parser.add_argument("--model", help="default: the first one that is served")
    parser.add_argument("--api-key", help="key of the servers")
    options = parser.parse_args(argv)
    options.url = [url.rstrip("/") for url in options.url or ["http://127.0.0.1:8100"]]
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    console = Console()
    try:
        with httpx.Client(timeout=600, headers=headers) as http:
            model = options.model or first_model(http, options.url[0])
            run(Client(http, model, options.max_tokens), options, console)
    except TurnFailedError as error:
        Console(stderr=True, markup=False, highlight=False).print(f"error: {error}", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
