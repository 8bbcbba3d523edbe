"""Windows over a history that is kept, and cuts that are too rare to be one."""

from __future__ import annotations

import pytest

from agentcache.lint.python import check_python

CHAT = """
class Chat:
    def __init__(self):
        self.messages = [{{"role": "system", "content": "You are helpful."}}]

    def ask(self, client, text):
        self.messages.append({{"role": "user", "content": text}})
        {before}
        reply = client.chat.completions.create(model="m", messages={sent})
        self.messages.append({{"role": "assistant", "content": reply.choices[0].message.content}})
        {after}
"""


def in_chat(before: str = "pass", after: str = "pass", sent: str = "self.messages") -> list[str]:
    indented = (part.replace("\n", "\n        ") for part in (before, after))
    source = CHAT.format(before=next(indented), after=next(indented), sent=sent)
    return [finding.code for finding in check_python(source, "agent.py")]


@pytest.mark.parametrize(
    "cut",
    [
        "if len(self.messages) > 20:\n    self.messages = self.messages[:1] + self.messages[-10:]",
        "if len(self.messages) >= 12:\n    self.messages = [self.messages[0], *self.messages[-8:]]",
        "self.messages[1:-10] = []",
        "if len(self.messages) > 20:\n    self.messages[1:-10] = []",
        "if len(self.messages) > 20:\n    del self.messages[1:-10]",
    ],
)
def test_a_window_on_the_count_is_told_before_and_behind_the_call(cut):
    assert in_chat(before=cut) == ["AC402"]
    assert in_chat(after=cut) == ["AC402"]


@pytest.mark.parametrize(
    "cut",
    [
        "if len(self.messages) > 100:\n    self.messages = self.messages[:1] + self.messages[-10:]",
        "if len(self.messages) > 100:\n    self.messages[1:-10] = []",
        "if len(self.messages) > 100:\n    del self.messages[1:-10]",
        "if len(self.messages) > 20:\n    summary = summarize(self.messages)\n"
        "    self.messages = self.messages[:1] + [summary] + self.messages[-10:]",
        "if len(self.messages) > 20:\n    self.messages[1:-10] = [summarize(self.messages)]",
        "self.messages[3:] = []",
    ],
)
def test_a_cut_that_leaves_little_or_a_summary_is_none(cut):
    assert in_chat(before=cut) == []
    assert in_chat(after=cut) == []


def test_a_window_that_is_only_shown_slides_however_late_it_begins():
    late = "shown = self.messages\nif len(self.messages) > 100:\n    shown = self.messages[:1] + self.messages[-10:]"
    assert in_chat(before=late, sent="shown") == ["AC402"]
    assert in_chat(sent="self.messages if len(self.messages) < 100 else self.messages[-10:]") == ["AC402"]


def test_a_window_over_what_a_function_is_given_slides_each_time_it_is_called():
    source = """
def ask(client, messages):
    if len(messages) > 100:
        messages = messages[:1] + messages[-10:]
    return client.chat.completions.create(model="m", messages=messages)
"""
    assert [finding.code for finding in check_python(source, "agent.py")] == ["AC402"]
