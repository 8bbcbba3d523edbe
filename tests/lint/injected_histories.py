"""Defects of settings, and of what was said before."""

from __future__ import annotations

import json
from collections.abc import Callable

from injected_traffic import Injected, Injector
from twin_parts import Body


class HistoryDefects(Injector):
    def field(self, code, name, values, key):
        own = self.some_session()
        if own is None:
            return None
        start = self.random.randrange(1, len(own))
        bodies, sound = self.copies(), self.copies()
        for i, body in enumerate(bodies):
            for b in (body, sound[i]):
                b[key] = values[0]
        for i in own[start:]:
            bodies[i][key] = values[1]
        return Injected(code, name, bodies, sound, own[start] + 1, key + ".*")

    def model(self):
        return self.field("AC601", "model", ("m-large", "m-small"), "model")

    def salt(self):
        return self.field("AC602", "salt", ("a", "b"), "cache_salt")

    def adapter(self):
        return self.field("AC603", "adapter", ("law", "tax"), "adapter")

    def option(self):
        return self.field(
            "AC604", "option", ({"reasoning_effort": "low"}, {"reasoning_effort": "high"}), "chat_template_kwargs"
        )

    def response_format(self):
        return self.field(
            "AC303",
            "format",
            ({"response_format": {"type": "text"}}, {"response_format": {"type": "json_object"}}),
            "chat_template_kwargs",
        )

    def history(self, code, name, change: Callable[[Body, int, int], bool], role: str, path: str, needs=lambda m: True):
        """A message that an earlier request of the session has is another from some request on."""
        r = self.traffic.requests
        choices = []
        for i, before in self.later_turns():
            for k, m in enumerate(r[before].messages[:-1]):
                if m["role"] == role and needs(m):
                    choices.append((i, k))
        if not choices:
            return None
        i, k = self.random.choice(choices)
        bodies, sound = self.copies(), self.copies()
        for j in range(i, len(r)):
            if r[j].session == r[i].session:
                change(bodies[j]["messages"][k], k, j)
        return Injected(code, name, bodies, sound, i + 1, path.format(k=k))

    def edited(self):
        role = self.random.choice(["user", "user", "assistant", "tool"])

        def change(m, k, j):
            m["content"] += " And so on."

        return self.history(
            "AC401",
            f"edited {role}",
            change,
            role,
            r"messages\[{k}\]\.content",
            lambda m: len(m["content"].split()) > 9,
        )

    def arguments(self):
        def change(m, k, j):
            c = m["tool_calls"][0]["function"]
            c["arguments"] = json.dumps(dict(reversed(json.loads(c["arguments"]).items())))

        return self.history(
            "AC207",
            "arguments",
            change,
            "assistant",
            r"messages\[{k}\]\.tool_calls\[0\].*",
            lambda m: m.get("tool_calls"),
        )

    def call_id(self):
        r = self.traffic.requests
        choices = [(i, k) for i, b in self.later_turns() for k, m in enumerate(r[b].messages) if m.get("tool_calls")]
        if not choices:
            return None
        i, k = self.random.choice(choices)
        bodies, sound = self.copies(), self.copies()
        for j in range(i, len(r)):
            if r[j].session == r[i].session:
                old = bodies[j]["messages"][k]["tool_calls"][0]["id"]
                new = "call_9" + old[5:]
                bodies[j]["messages"][k]["tool_calls"][0]["id"] = new
                for m in bodies[j]["messages"]:
                    if m.get("tool_call_id") == old:
                        m["tool_call_id"] = new
        return Injected("AC208", "call id", bodies, sound, i + 1, rf"messages\[{k}\]\.tool_calls\[0\]\.id")

    def escapes(self):
        def change(m, k, j):
            m["content"] = m["content"].replace("é", "\\u00e9")

        return self.history("AC206", "escapes", change, "tool", r"messages\[{k}\]\.content")

    def reasoning(self):
        def change(m, k, j):
            del m["reasoning_content"]

        return self.history(
            "AC405", "reasoning", change, "assistant", r"messages\[{k}\].*", lambda m: m.get("reasoning_content")
        )

    def dropped(self):
        own = self.some_session(3)
        if own is None:
            return None
        i = own[self.random.randrange(2, len(own))]
        bodies = self.copies()
        r = self.traffic.requests
        m = r[i].messages
        cut = next(k for k in range(3, len(m)) if m[k]["role"] in ("user", "assistant"))
        before = r[self.earlier_of_session(i)[-1]].messages
        if not self.traffic.named or len(before) < cut + 3:
            return None
        for j in own:
            if j >= i:
                del bodies[j]["messages"][1:cut]
        return Injected("AC402", "dropped", bodies, None, i + 1, r"messages\[1\].*")

    def inserted(self):
        own = self.some_session(2)
        if own is None:
            return None
        i = own[self.random.randrange(1, len(own))]
        bodies = self.copies()
        role = self.random.choice(["user", "system"])
        if not self.traffic.named:
            return None
        for j in own:
            if j >= i:
                bodies[j]["messages"].insert(1, {"role": role, "content": "The build machine is down until noon."})
        return Injected("AC404", f"inserted {role}", bodies, None, i + 1, r"messages\[1\].*")
