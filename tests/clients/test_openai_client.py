"""OpenAI's own library on chat completions."""

from __future__ import annotations

import json

import openai
import pytest
from pydantic import BaseModel, Field
from weather import FORCED, QUESTION, TOOL

MODEL = "smollm2"
SHORT = {"model": MODEL, "temperature": 0, "max_completion_tokens": 60}


@pytest.fixture(scope="module")
def client(smollm2):
    with openai.OpenAI(base_url=f"{smollm2.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_conversation_with_tools_stays_cached_up_to_the_end_of_each_reply(client):
    messages = [{"role": "system", "content": "You are a helper."}, {"role": "user", "content": QUESTION}]
    before = 0
    for choice in (FORCED, "none", "required", "none"):
        reply = client.chat.completions.create(messages=messages, tools=[TOOL], tool_choice=choice, **SHORT)
        details = reply.usage.prompt_tokens_details
        assert details.cached_tokens >= before - 2  # the last token that was drawn has no page yet
        before = reply.usage.total_tokens
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if choice == "none":
            assert message.content and not message.tool_calls
            messages.append({"role": "user", "content": "And in Rome?"})
            continue
        assert reply.choices[0].finish_reason == "tool_calls"
        assert len({call.id for call in message.tool_calls}) == len(message.tool_calls) >= 1
        for call in message.tool_calls:
            assert set(json.loads(call.function.arguments)) == {"city"}
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny, 20 degrees"})


def test_the_streaming_helper_puts_calls_together(client):
    asked = {"messages": [{"role": "user", "content": QUESTION}], "tools": [TOOL], "tool_choice": FORCED, **SHORT}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds
    (streamed,), (told,) = final.choices[0].message.tool_calls, whole.choices[0].message.tool_calls
    assert streamed.function.name == told.function.name
    assert streamed.function.arguments == told.function.arguments
    assert final.usage.total_tokens == whole.usage.total_tokens
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"


def test_a_schema_is_kept_and_parsed(client):
    class Weather(BaseModel):
        degrees: int = Field(ge=-9, le=9)
        sunny: bool

    reply = client.chat.completions.parse(
        messages=[{"role": "user", "content": "Sunny, 7 degrees."}], response_format=Weather, **SHORT
    )
    assert isinstance(reply.choices[0].message.parsed, Weather)
    plain = client.chat.completions.create(
        messages=[{"role": "user", "content": "An object, please."}], response_format={"type": "json_object"},
        **{**SHORT, "max_completion_tokens": 200},
    )  # fmt: skip
    if plain.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(plain.choices[0].message.content), dict)


def test_streamed_text_is_the_whole_text(client):
    asked = {"messages": [{"role": "user", "content": "Say hello in Japanese."}], **SHORT}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].agentcache["cached_tokens"] == chunks[-1].agentcache["prompt_tokens"] - 1


def test_errors_are_the_clients_own(client):
    asked = {"messages": [{"role": "user", "content": "hi"}], **SHORT}
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            **asked, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "x"}}
        )
    assert error.value.param == "tool_choice"
    assert error.value.request_id
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**asked, "model": "gpt-9"}, stream=True)
