"""OpenAI's own libraries hold tool conversations with the server, unmodified."""

from __future__ import annotations

import asyncio
import json
from typing import Literal

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai.lib.streaming.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

MODEL = "smollm2"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ASKED = {"model": MODEL, "tools": [WEATHER], "temperature": 0, "parallel_tool_calls": False}


class Verdict(BaseModel):
    """Few tokens, whatever the model says."""

    sunny: bool


@pytest.fixture(scope="module")
def client(smollm2):
    with openai.OpenAI(base_url=f"{smollm2.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_conversation_with_tools_that_the_server_keeps(client):
    first = client.responses.create(input="What is the weather in Rome?", tool_choice="required", **ASKED)
    (call,) = first.output
    assert (first.status, call.type, call.name) == ("completed", "function_call", "get_weather")
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = client.responses.create(
        input=[result], previous_response_id=first.id, tool_choice="none", max_output_tokens=4, **ASKED
    )
    assert [item.type for item in second.output] == ["message"]
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 2
    named = {"type": "function", "name": "get_weather"}
    third = client.responses.create(input="And in Oslo?", previous_response_id=second.id, tool_choice=named, **ASKED)
    assert [item.type for item in third.output] == ["function_call"]
    assert third.usage.input_tokens_details.cached_tokens >= second.usage.total_tokens - 2
    assert client.responses.retrieve(third.id).output == third.output
    listed = list(client.responses.input_items.list(third.id, limit=2, order="asc"))
    assert listed[0].content[0].text == "What is the weather in Rome?"
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message", "message"]
    client.responses.delete(third.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(third.id)


def test_the_streaming_helper_and_a_conversation_that_the_client_keeps(client):
    history = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with client.responses.stream(input=history, tool_choice="required", store=False, **ASKED) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds
    (call,) = first.output
    assert call.parsed_arguments["city"] in ("Rome", "Oslo")
    history += [call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "snow"}]
    asked = {**ASKED, "tool_choice": "none", "text_format": Verdict, "store": False}
    with client.responses.stream(input=history, **asked) as stream:
        text = "".join(event.delta for event in stream if isinstance(event, ResponseTextDeltaEvent))
        second = stream.get_final_response()
    assert text == second.output_text
    assert isinstance(second.output_parsed, Verdict)
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 2


def test_errors_reach_the_client_as_its_own(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model=MODEL, input="a", tools=[{"type": "code_interpreter", "container": "c"}])
    assert error.value.param == "tools[0].type"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input="a", previous_response_id="resp_none", stream=True)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_calls_its_function_and_answers(smollm2, streamed):
    called = []

    @function_tool
    def lookup(word: Literal["cache", "page"]) -> str:
        """Look a word up."""
        called.append(word)
        return "a word"

    async def run(agent, given):
        config = RunConfig(tracing_disabled=True)
        if not streamed:
            return await Runner.run(agent, given, run_config=config)
        result = Runner.run_streamed(agent, given, run_config=config)
        async for _ in result.stream_events():
            pass
        return result

    async def talk():
        async with openai.AsyncOpenAI(base_url=f"{smollm2.url}/v1", api_key="any", max_retries=0) as made:
            agent = Agent(
                name="assistant",
                instructions="Look words up.",
                tools=[lookup],
                model=OpenAIResponsesModel(model=MODEL, openai_client=made),
                model_settings=ModelSettings(tool_choice="lookup", temperature=0, parallel_tool_calls=False),
                tool_use_behavior="stop_on_first_tool",
            )
            first = await run(agent, "What is a cache?")
            asked = [*first.to_input_list(), {"role": "user", "content": "Is it sunny?"}]
            answering = ModelSettings(tool_choice="none", temperature=0)
            return first, await run(agent.clone(output_type=Verdict, model_settings=answering), asked)

    first, second = asyncio.run(talk())
    assert called in (["cache"], ["page"])
    assert [type(item).__name__ for item in first.new_items] == ["ToolCallItem", "ToolCallOutputItem"]
    assert first.final_output == "a word"
    assert isinstance(second.final_output, Verdict)
    usage = second.context_wrapper.usage
    assert usage.input_tokens_details.cached_tokens >= first.context_wrapper.usage.total_tokens - 2
