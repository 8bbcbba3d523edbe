"""Three agents at work on one code base, so that every kind of thing is on the page at once.

They share a system prompt and tools.  One works in a session that is pinned while its tool runs, and is forked; the second
sends its whole history each time and changes its mind about it once; the third is cut off from its pages by the others.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx

SYSTEM = """You are a careful software engineer who works in a repository through tools. Read before you write. Never guess \
what a file holds: open it. Change as little as possible, keep the style of what is there, and run the tests after every \
change. When the tests fail, read the first failure from its top and say what it means before you touch anything. Say what \
you did in two sentences at the end, name the files, and name what you did not check.

Rules of this repository: functions stay below fifty lines; public functions have docstrings; nothing is committed that a \
type checker complains about; a fault becomes a test before it is mended; names say what a thing is, not how it is made.

Tools:
read_file(path, first_line, last_line): lines of a file, numbered.
search(pattern, folder): lines that match a regular expression, with their files.
run_tests(selection): runs the chosen tests and gives the end of their output.
apply_patch(patch): applies a unified diff; refuses what does not fit.
"""
TASKS = {
    "parser": [
        "The parser drops the last line of a file without a newline at its end. Find out where.",
        "run_tests says: test_last_line_without_newline FAILED, expected ['a', 'b'], got ['a']. What is the cause?",
        "Write the patch, and a test for files that hold nothing but a newline.",
        "The reviewer asks whether Windows line ends still work. Check it.",
    ],
    "docs": [
        "The README says that --jobs defaults to 4; the code says os.cpu_count(). Which is right since release 2.1?",
        "Correct the README and every other place that repeats the number.",
        "Add a line to the change log.",
    ],
    "speed": [
        "Start-up takes 900 ms since last week. Find what is imported too early.",
        "search found: import pandas in cli/options.py line 12. It is used in one function only. Move it.",
        "Measure again and give both figures.",
    ],
}
LOG = "2026-03-0{i} 10:{i}4:07 WARN retry of chunk {i}{i} after 30{i} ms; queue {i}1, workers {i}, backlog growing in eu-{i}\n"


class Agents:
    """Play the scene against a server."""

    def __init__(self, url: str, key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=120)
        self.busy: list[threading.Thread] = []

    def play(self, reply_tokens: int = 24) -> None:
        parser = self.session("parser agent", 1800)
        for task in TASKS["parser"][:2]:
            self.turn(parser, task, reply_tokens)
        history = self.stateless("docs", reply_tokens)
        self.post(f"/v1/sessions/{parser}/wait", {"tool": "run_tests", "expect_s": 40, "ttl_s": 240})
        speed = self.session("speed agent", 900)
        for task in TASKS["speed"][:2]:
            self.turn(speed, task, reply_tokens)
        for branch in self.post(f"/v1/sessions/{parser}/fork", {"n": 2})["sessions"]:
            self.turn(
                branch["id"],
                f"Try it {'by reading in chunks' if branch['id'] < parser else 'with splitlines'}.",
                reply_tokens,
            )
        self.flood(3)
        self.turn(speed, TASKS["speed"][2], reply_tokens)
        history[1] = {"role": "user", "content": history[1]["content"].replace("release 2.1", "release 2.2")}
        self.chat(history, reply_tokens)
        for task in TASKS["parser"][2:]:
            self.turn(parser, task, reply_tokens)
        self.chat(
            [{"role": "user", "content": "Good morning. " + TASKS["docs"][2]}], reply_tokens, cache_salt="sandbox"
        )

    def keep_busy(self, count: int = 5) -> None:
        """Long replies in the background, so that the queues hold something."""
        for number in range(count):
            text = f"Summarise what part {number} of this log says.\n" + "".join(
                LOG.format(i=i) for i in range(1, 2 + 2 * number)
            )
            body = {
                "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
                "max_tokens": 400, "ignore_eos": True, "priority": number % 2,
            }  # fmt: skip
            self.busy.append(threading.Thread(target=self._post_quietly, args=(body,), daemon=True))
            self.busy[-1].start()
            time.sleep(0.05)

    def _post_quietly(self, body: dict[str, Any]) -> None:
        try:
            self.http.post("/v1/chat/completions", json=body)
        except httpx.HTTPError:
            pass  # the scene was over

    def session(self, name: str, ttl_s: int) -> str:
        return self.post("/v1/sessions", {"system": SYSTEM, "ttl_s": ttl_s, "metadata": {"name": name}})["id"]

    def turn(self, session: str, text: str, max_tokens: int) -> dict[str, Any]:
        return self.chat([{"role": "user", "content": text}], max_tokens, session=session)

    def stateless(self, name: str, max_tokens: int) -> list[dict[str, Any]]:
        history: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
        for task in TASKS[name][:2]:
            history.append({"role": "user", "content": task})
            history.append(self.chat(history, max_tokens)["choices"][0]["message"])
        return [*history, {"role": "user", "content": TASKS[name][2]}]

    def flood(self, count: int) -> None:
        """Long tool results that push others out."""
        for number in range(count):
            log = "".join(LOG.format(i=(i + number) % 10) for i in range(12))
            self.chat([{"role": "user", "content": f"Report {number}.\n{log}"}], 4)

    def chat(self, messages: list[dict[str, Any]], max_tokens: int, **fields: Any) -> dict[str, Any]:
        body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **fields}
        return self.post("/v1/chat/completions", body)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.http.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()
