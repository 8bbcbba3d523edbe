"""What the tests of openai-agents' runners talk with."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

from agents import Agent, Runner, function_tool
from saying import Saying

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":   "Paris"}}\n</tool_call>'
ANSWER = "It is sunny there, with a light wind from the west and a few clouds over the hills."

LONG = "Hello, and a long story. " * 20


def weather(saying: Saying):
    """A tool after which the model answers; not strict, because the model says what it is told and obeys no grammar."""

    @function_tool(strict_mode=False)
    def get_weather(city: str) -> str:
        """The weather in a city."""
        saying.says(ANSWER)
        return f"sunny in {city}"

    return get_weather


def instructions(name: str, words: int = 300) -> str:
    """Nothing in common with another test's, and longer than what may count as one text with something filled in."""
    known = ["be", "kind", "brief", "and", "say", "what", "you", "did", "do", "not", "guess", "ask", "look", "first"]
    return " ".join(random.Random(name).choices(known, k=words))


def helper(name: str, *tools, words: int = 300, **fields) -> Agent:
    """An agent whose prompt no other test has sent."""
    return Agent(name=name, instructions=instructions(name, words), tools=[*tools], **fields)


async def ask(session, agent, text, *, streamed=False, **fields):
    fields.setdefault("run_config", session.run_config())
    if not streamed:
        return await Runner.run(agent, text, session=session, **fields)
    result = Runner.run_streamed(agent, text, session=session, **fields)
    async for _ in result.stream_events():
        pass
    return result


def finds_the_reply_before_it(rows) -> bool:
    """Every call has the prompt before it in the cache, and the reply to that: all positions that were there or were run."""
    return all(later.cached >= earlier.cached + earlier.computed for earlier, later in pairwise(rows))


def in_the_runners_loop(closing):
    asyncio.get_event_loop_policy().get_event_loop().run_until_complete(closing)
