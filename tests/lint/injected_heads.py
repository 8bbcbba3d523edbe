"""Defects of what requests begin with: system text and tools."""

from __future__ import annotations

import copy
import json
import random
import re
import unicodedata
import uuid
from collections.abc import Callable
from typing import Any

from injected_traffic import HEADS, WORDS, Injected, Injector
from twin_parts import Body


class HeadDefects(Injector):
    def slot(
        self, code: str, name: str, make: Callable[[int], str], *, by: str, places=("head", "middle", "end")
    ) -> Injected | None:
        place = self.random.choice([p for p in places if not (by == "session" and p == "end")])
        reqs = self.traffic.requests
        bodies, sound = self.copies(), self.copies()
        values: dict[int, str] = {}
        first_of: dict[Any, str] = {}
        record = None
        for order, index in enumerate(self.mine):
            key = reqs[index].session if by == "session" else order
            value = values.setdefault(key, make(key))
            group = reqs[index].session if place == "end" else 0
            base = first_of.setdefault(group, value)
            if record is None and value != base:
                record = index + 1
            for body, text in ((bodies[index], value), (sound[index], base)):
                content = HEADS[self.agent]
                if place == "head":
                    new = text + content.format("")
                elif place == "middle":
                    new = content.format(text)
                else:
                    new = content.format("") + text
                body["messages"][0]["content"] = new
        if record is None:
            return None
        return Injected(code, f"{name}, {place}, by {by}", bodies, sound, record, r"messages\[0\]\.content")

    def clock(self):
        unit = self.random.choice(["second", "minute", "day"])
        stamp = {
            "second": lambda n: f"Current time: 2026-11-29 10:{10 + n}:{(7 * n) % 50 + 10}.\n",
            "minute": lambda n: f"Now: 2026-11-29 10:{10 + n}.\n",
            "day": lambda n: f"Today is 2026-11-{10 + n}.\n",
        }[unit]
        return self.slot("AC101", f"clock {unit}", stamp, by="request")

    def uuid(self):
        r = self.random
        ids = {}

        def make(n):
            return ids.setdefault(n, f"Session id: {uuid.UUID(int=r.getrandbits(128))}\n")

        return self.slot("AC102", "uuid", make, by=r.choice(["request", "session"]))

    def tmp(self):
        r = self.random
        ids = {}

        def make(n):
            name = "".join(r.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(8))
            return ids.setdefault(n, f"Scratch files go to /tmp/agent-{name}/work only.\n")

        return self.slot("AC102", "temporary path", make, by="session")

    def counter(self):
        return self.slot("AC103", "counter", lambda n: f"You have used {17 + n} of 90 tool calls.\n", by="request")

    def environment(self):
        users = ("ann", "bob", "cyd", "dov", "eve", "flo")
        return self.slot(
            "AC104",
            "environment",
            lambda n: (
                f"<env>\nWorking directory: /home/{users[n]}/shop\nPlatform: linux\nBranch: {users[n]}-fix\n</env>\n"
            ),
            by="session",
            places=("head", "middle"),
        )

    def personal(self):
        people = (
            "Customer: Anna Moser. Plan: gold since 2019. She asks for short answers, and likes examples.\n",
            "Customer: Bert Oduya. Plan: free. He wants each step to be explained at length, with reasons.\n",
            "Customer: Chloe Martin. Plan: silver. Calls from a phone, so no tables and no long lines.\n",
            "Customer: Dov Levi. Plan: gold. Writes in Hebrew now and then, and wants replies in English.\n",
            "Customer: Eva Horn. Plan: none yet. Only looks around, and buys nothing before the weekend.\n",
        )
        return self.slot("AC105", "profile", lambda n: people[n], by="session", places=("head",))

    def documents(self):
        def make(n):
            r = random.Random(n)
            docs = "".join(
                f"<document>{' '.join(r.choice(WORDS) for _ in range(12))} {n}.{k}</document>\n" for k in range(2)
            )
            return f"Context:\n{docs}"

        return self.slot("AC106", "documents", make, by="request", places=("head", "middle"))

    def rewritten_head(self, code, name, rewrite: Callable[[Body], None], path):
        """Some of the agent's requests have their head in another form."""
        bodies, sound = self.copies(), self.copies()
        mine = self.mine
        odd = [i for i in mine[1:] if self.random.random() < 0.5] or [self.random.choice(mine[1:])]
        for i in odd:
            rewrite(bodies[i])
        if all(json.dumps(bodies[i]) == json.dumps(sound[i]) for i in odd):
            return None
        return Injected(code, name, bodies, sound, odd[0] + 1, path)

    def key_order(self):
        if not self.needs_tools():
            return None
        number = self.random.randrange(3)

        def rewrite(body):
            f = body["tools"][number]["function"]
            f["parameters"] = {k: f["parameters"][k] for k in reversed(f["parameters"])}

        return self.rewritten_head("AC201", "key order", rewrite, rf"tools\[{number}\].*")

    def tool_order(self):
        if not self.needs_tools():
            return None

        def rewrite(body):
            body["tools"] = body["tools"][::-1]

        return self.rewritten_head("AC202", "tool order", rewrite, r"tools.*")

    def set_order(self):
        def rewrite(body):
            text = body["messages"][0]["content"]
            block = re.search(r"(?:^(?:-) .*\n){3}", text, re.M)
            if block:
                lines = block[0].splitlines(keepends=True)
                body["messages"][0]["content"] = text.replace(block[0], "".join([lines[1], lines[2], lines[0]]))

        return self.rewritten_head("AC203", "set order", rewrite, r"messages\[0\]\.content")

    def enum_order(self):
        if not self.needs_tools():
            return None
        number = self.random.randrange(3)

        def rewrite(body):
            p = body["tools"][number]["function"]["parameters"]["properties"]["mode"]
            p["enum"] = p["enum"][::-1]

        return self.rewritten_head("AC203", "enum order", rewrite, rf"tools\[{number}\].*")

    def white_space(self):
        form = self.random.choice(["crlf", "double", "strip"])

        def rewrite(body):
            m = body["messages"][0]
            m["content"] = {
                "crlf": m["content"].replace("\n", "\r\n"),
                "double": m["content"].replace(". ", ".  "),
                "strip": m["content"].replace("\n\n", "\n"),
            }[form]

        return self.rewritten_head("AC204", f"white space {form}", rewrite, r"messages\[0\]\.content")

    def unicode_form(self):
        if self.agent != 0:
            return None

        def rewrite(body):
            m = body["messages"][0]
            m["content"] = unicodedata.normalize("NFD", m["content"])

        return self.rewritten_head("AC205", "NFD", rewrite, r"messages\[0\]\.content")

    def description(self):
        if not self.needs_tools():
            return None
        number = self.random.randrange(3)

        def rewrite(body):
            p = body["tools"][number]["function"]["parameters"]["properties"]["mode"]
            p["enum"] = [*p["enum"], "any"]

        return self.rewritten_head("AC302", "schema", rewrite, rf"tools\[{number}\].*")

    def tool_set(self):
        if not self.needs_tools():
            return None
        own = self.some_session()
        if own is None:
            return None
        start = self.random.randrange(1, len(own))
        bodies, sound = self.copies(), self.copies()
        extra = {
            "type": "function",
            "function": {
                "name": "deploy",
                "description": "Deploys.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        at = self.random.randrange(4)
        for i in own[start:]:
            bodies[i]["tools"].insert(at, copy.deepcopy(extra))
        return Injected("AC301", "tool added", bodies, sound, own[start] + 1, r"tools")
