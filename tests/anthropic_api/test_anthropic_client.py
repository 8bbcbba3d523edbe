"""Anthropic's own library against a server with real weights."""

from __future__ import annotations

from typing import Literal

import anthropic
import pytest
from anthropic import beta_tool
from messages_calls import FORCED, GREEDY, MODEL, TOOL, prompt_tokens, results
from pydantic import BaseModel

QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
SYSTEM = [{"type": "text", "text": "You are a helper.", "cache_control": {"type": "ephemeral"}}]
SHORT = {"model": MODEL, "max_tokens": 40, "extra_body": GREEDY}


@pytest.fixture(scope="module")
def client(smollm2):
    with anthropic.Anthropic(base_url=smollm2.url, api_key="any", max_retries=0) as made:
        yield made


def test_a_conversation_with_tools_stays_cached_up_to_the_end_of_each_reply(client):
    messages, before = [QUESTION], 0
    for choice in (FORCED, {"type": "none"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "none"}):
        counted = client.messages.count_tokens(
            model=MODEL, system=SYSTEM, messages=messages, tools=[TOOL], tool_choice=choice
        )
        reply = client.messages.create(system=SYSTEM, messages=messages, tools=[TOOL], tool_choice=choice, **SHORT)
        assert prompt_tokens(reply.usage) == counted.input_tokens
        assert reply.usage.cache_read_input_tokens >= before - 2  # the last token that was drawn has no page yet
        assert reply.agentcache["cached_tokens"] == reply.usage.cache_read_input_tokens
        before = counted.input_tokens + reply.usage.output_tokens
        messages.append(reply.to_param())
        if choice["type"] == "none":
            assert [block.type for block in reply.content] == ["text"]
            messages.append({"role": "user", "content": "And in Rome?"})
            continue
        assert reply.stop_reason == "tool_use"
        assert all(set(block.input) == {"city"} for block in reply.content)
        messages.append(results(reply.content))


def test_the_streaming_helper_puts_the_same_message_together(client):
    asked = {"messages": [QUESTION], "tools": [TOOL], "tool_choice": FORCED, **SHORT}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert {"message_start", "input_json", "content_block_stop", "message_delta", "message_stop"} <= kinds
    assert [(block.name, block.input) for block in final.content] == [(b.name, b.input) for b in whole.content]
    assert final.stop_reason == whole.stop_reason == "tool_use"
    assert prompt_tokens(final.usage) == prompt_tokens(whole.usage)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_the_tool_runner_runs_tools_until_it_is_told_to_stop(client):
    asked = []

    @beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: its name.
        """
        asked.append(city)
        return "sunny"

    runner = client.beta.messages.tool_runner(
        messages=[QUESTION], tools=[get_weather], max_iterations=2,
        tool_choice={**FORCED, "disable_parallel_tool_use": True}, **SHORT,
    )  # fmt: skip
    replies = list(runner)
    assert len(replies) == 2 and asked
    assert all(reply.stop_reason in ("tool_use", "max_tokens") for reply in replies)


def test_a_schema_is_kept_and_parsed(client):
    class Weather(BaseModel):
        sky: Literal["clear", "cloudy"]
        sunny: bool

    reply = client.messages.parse(messages=[QUESTION], output_format=Weather, **SHORT)
    assert isinstance(reply.parsed_output, Weather)


def test_a_thread_sends_only_what_is_new_and_reads_the_rest_from_the_cache(client):
    thread = client.beta.messages.thread(
        model=MODEL, max_tokens=40, system=SYSTEM, tools=[TOOL], tool_choice={**FORCED, "disable_parallel_tool_use": True},
        extra_body=GREEDY,
    )  # fmt: skip
    first = thread.send(QUESTION)
    assert first.stop_reason == "tool_use" and thread.previous_message_id == first.id
    second = thread.send(results(first.content), tool_choice={"type": "none"})
    before = prompt_tokens(first.usage) + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens >= before - 2
    with thread.stream({"role": "user", "content": "And in Rome?"}, tool_choice={"type": "none"}) as stream:
        third = stream.get_final_message()
    assert prompt_tokens(third.usage) > prompt_tokens(second.usage) + second.usage.output_tokens - 2
    assert thread.previous_message_id == third.id
    whole = client.beta.messages.count_tokens(
        model=MODEL, system=SYSTEM, tools=[TOOL], messages=list(thread.messages)[:-1]
    )
    assert whole.input_tokens == prompt_tokens(third.usage)


def test_the_served_model_is_listed(client):
    (listed,) = client.models.list(limit=5)
    assert (listed.id, listed.type, listed.display_name) == (client.models.retrieve(listed.id).id, "model", listed.id)
    assert listed.created_at.year >= 1970
