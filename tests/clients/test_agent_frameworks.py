"""Frameworks that agents are written in hold tool conversations with the server, unmodified."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from agents import Agent as OpenAIAgent
from agents import ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from smolagents import OpenAIModel, ToolCallingAgent
from smolagents import tool as smol_tool
from weather import QUESTION, TOOL

MODEL = "smollm2"


@pytest.fixture(scope="module")
def base_url(smollm2):
    return f"{smollm2.url}/v1"


@pytest.mark.parametrize("streamed", [False, True])
def test_openai_agents_on_chat_completions(base_url, streamed):
    called = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return "sunny"

    async def run():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
            settings = ModelSettings(tool_choice="required", max_tokens=60, temperature=0, parallel_tool_calls=False)
            agent = OpenAIAgent(
                name="helper", instructions="Be brief.", tools=[get_weather], model_settings=settings,
                model=OpenAIChatCompletionsModel(MODEL, client),
            )  # fmt: skip
            config = RunConfig(tracing_disabled=True)
            if not streamed:
                return await Runner.run(agent, QUESTION, run_config=config, max_turns=3)
            result = Runner.run_streamed(agent, QUESTION, run_config=config, max_turns=3)
            async for _ in result.stream_events():
                pass
            return result

    result = asyncio.run(run())
    assert len(called) == 1
    assert isinstance(result.final_output, str)


def test_pydantic_ai_calls_a_tool_and_returns_what_was_asked_for(base_url):
    class Weather(BaseModel):
        sunny: bool
        degrees: int = Field(ge=-9, le=9)

    called = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return "sunny, 5 degrees"

    async def only_once(ctx: RunContext[None], definition):
        return None if called else definition

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=base_url, api_key="any"))
    agent = PydanticAgent(
        model, output_type=Weather, tools=[Tool(get_weather, prepare=only_once)],
        model_settings={"temperature": 0, "max_tokens": 80, "parallel_tool_calls": False},
    )  # fmt: skip
    result = agent.run_sync(QUESTION)
    assert isinstance(result.output, Weather)
    kinds = [part.part_kind for message in result.all_messages() for part in message.parts]
    assert kinds.count("tool-call") == kinds.count("tool-return") >= 1


def test_langchain_calls_streams_and_structures(base_url):
    @langchain_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    chat = ChatOpenAI(model=MODEL, base_url=base_url, api_key="any", temperature=0, max_completion_tokens=60)
    calling = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
    messages = [HumanMessage(QUESTION)]
    for _ in range(2):
        reply = calling.invoke(messages)
        (call,) = reply.tool_calls
        messages += [reply, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0
    merged = None
    for chunk in calling.stream(messages[:1]):
        merged = chunk if merged is None else merged + chunk
    assert [(call["name"], call["args"]) for call in merged.tool_calls] == [
        (call["name"], call["args"]) for call in messages[1].tool_calls
    ]
    answer = chat.bind_tools([get_weather], tool_choice="none").invoke(messages)
    assert answer.content and not answer.tool_calls

    class Weather(BaseModel):
        sunny: bool

    assert isinstance(chat.with_structured_output(Weather).invoke("It is sunny."), Weather)


def test_litellm_completes_and_rebuilds_streams(base_url):
    import litellm

    asked = {
        "model": f"openai/{MODEL}", "api_base": base_url, "api_key": "any", "temperature": 0, "max_tokens": 60,
        "tools": [TOOL],
    }  # fmt: skip
    messages = [{"role": "user", "content": QUESTION}]
    reply = litellm.completion(messages=messages, tool_choice="required", **asked)
    message = reply.choices[0].message
    assert reply.choices[0].finish_reason == "tool_calls"
    messages.append(message.model_dump())
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls]
    second = litellm.completion(messages=messages, tool_choice="none", **asked)
    assert second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens >= reply.usage.total_tokens - 2
    chunks = list(litellm.completion(messages=messages[:1], tool_choice="required", stream=True, **asked))
    rebuilt = litellm.stream_chunk_builder(chunks, messages=messages[:1])
    assert [call.function.arguments for call in rebuilt.choices[0].message.tool_calls] == [
        call.function.arguments for call in message.tool_calls
    ]


def test_smolagents_runs_its_loop(base_url):
    called = []

    @smol_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: Its name.
        """
        called.append(city)
        return "sunny"

    model = OpenAIModel(MODEL, api_base=base_url, api_key="any", temperature=0, max_tokens=120)
    agent = ToolCallingAgent(
        tools=[get_weather], model=model, max_steps=2, verbosity_level=0,
        instructions="Call get_weather, then final_answer.",
    )  # fmt: skip
    result = agent.run(QUESTION)
    steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
    assert steps and all(isinstance(json.loads(json.dumps(step.tool_calls[0].arguments)), dict) for step in steps)
    assert result is not None
