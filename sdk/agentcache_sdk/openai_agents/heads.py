"""Several agents in one conversation, with one beginning.

What an agent is told stands before the conversation, so a prompt that is handed to another agent shares nothing with the one
before it.  With a preamble that all agents share, each agent's own instructions become an item of the conversation, at the
place where the agent takes over, and stay there::

    [ preamble, tools ][ "You are A" ][ user ][ A's reply ][ handoff ][ "You are B" ][ B's reply ][ user ] ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agents import Agent

Item = Any
"""An input item of the Responses API, as openai-agents keeps them."""


@dataclass(frozen=True)
class Announcement:
    """An agent's instructions, in front of the session's item number ``at``."""

    at: int
    agent: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Announcement:
        return cls(**value)


@dataclass
class Announcements:
    """In the order of the conversation; only ever added behind the others."""

    entries: list[Announcement] = field(default_factory=list)

    def copy(self) -> Announcements:
        return Announcements(list(self.entries))

    def truncate(self, items: int) -> None:
        """The conversation was cut to its first ``items`` items: who goes on from there is announced anew."""
        self.entries = [entry for entry in self.entries if entry.at < items]

    def turn_to(self, agent: str, text: str, items: Sequence[Item], cut: int) -> Announcement | None:
        """Announce ``agent``, unless it has the word already, in front of the newest input.

        Args:
            items: what the model is about to read.
            cut: how many of the session's items at the beginning are not in it.
        """
        last = self.entries[-1] if self.entries else None
        if last is not None and (last.agent, last.text) == (agent, text):
            return None
        at = len(items)
        while at and _is_input(items[at - 1]):
            at -= 1
        made = Announcement(max(at + cut, last.at if last else 0), agent, text)
        self.entries.append(made)
        return made

    def woven(self, items: Sequence[Item], cut: int) -> list[Item]:
        """``items`` with the announcements in their places; of those in a part that was cut, the last one."""
        passed = [entry for entry in self.entries if entry.at <= cut] if cut else []
        kept = [(max(0, entry.at - cut), entry) for entry in self.entries if entry not in passed[:-1]]
        out: list[Item] = []
        done = 0
        for at, entry in kept:
            out += items[done:at]
            out.append({"role": "system", "content": entry.text})
            done = max(done, min(at, len(items)))
        return out + list(items[done:])


def _is_input(item: Item) -> bool:
    return isinstance(item, Mapping) and item.get("role") == "user"


def share_tools(*agents: Agent[Any]) -> None:
    """Give every agent the tools and handoffs of all, in one order, so that their prompts can begin alike.

    Chat templates write the tools at the beginning of the prompt, and a handoff is a tool.  The agents are changed in place,
    and each can then call every tool and hand over to everyone, itself included.
    """
    tools: list[Any] = []
    handoffs: list[Any] = []
    for agent in agents:
        tools += [tool for tool in agent.tools if not any(tool is known for known in tools)]
        handoffs += [other for other in agent.handoffs if not any(other is known for known in handoffs)]
    for agent in agents:
        agent.tools = list(tools)
        agent.handoffs = list(handoffs)
