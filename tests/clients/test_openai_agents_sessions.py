"""Conversations of openai-agents through ``agentcache_sdk.openai_agents``: what is cached, what is told, what is kept."""

from __future__ import annotations

import asyncio
import json
import warnings

import pytest
from agent_talks import (
    ANSWER,
    CALL,
    ask,
    finds_the_reply_before_it,
    helper,
    instructions,
    weather,
)
from agents import Agent, ModelSettings, Runner, function_tool
from agents.memory import Session
from saying import saying_server

from agentcache_sdk import AsyncClient, CacheWarning, Client
from agentcache_sdk.openai_agents import CachedSession

THINKING = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with saying_server(tmp_path_factory.mktemp("saying")) as made:
        yield made


@pytest.fixture
def saying(model):
    """With nothing in its cache: no test pushes out, or is compared with, what another one sent."""
    model.server.http.post("/v1/cache/flush").raise_for_status()
    return model


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_every_call_of_a_conversation_finds_the_reply_before_it_cached(saying, api, streamed):
    async def talk():
        async with AsyncClient(saying.server.url) as client, CachedSession(client, api=api) as session:
            agent = helper(f"{api} {streamed}", weather(saying))
            for question in ("What is the weather in Paris?", "And now?", "And once more?"):
                saying.says(CALL)
                assert (await ask(session, agent, question, streamed=streamed)).final_output == ANSWER
            return session

    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        session = asyncio.run(talk())
    rows = session.report().rows
    assert isinstance(session, Session)
    assert [row.turn for row in rows] == [0, 1, 2, 3, 4, 5]
    assert finds_the_reply_before_it(rows) and not any(row.lost for row in rows)
    kinds = [item.get("type", item.get("role")) for item in session.items]
    assert kinds == ["user", "function_call", "function_call_output", "message"] * 3
    calls = [item for item in session.items if item.get("type") == "function_call"]
    assert {call["arguments"] for call in calls} == {'{"city":   "Paris"}'}, "as generated, white space and all"
    results = [item["call_id"] for item in session.items if item.get("type") == "function_call_output"]
    assert results == [call["call_id"] for call in calls] and len(set(results)) == 3


def test_real_weights_call_a_tool_when_they_must_and_the_next_turn_finds_it(smollm2):
    called = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return "sunny"

    async def talk():
        async with AsyncClient(smollm2.url) as client, CachedSession(client) as session:
            settings = ModelSettings(tool_choice="required", max_tokens=40, temperature=0, parallel_tool_calls=False)
            agent = Agent(name="forced", instructions="Be brief.", tools=[get_weather], model_settings=settings)
            for question in ("What is the weather in Paris?", "And in Rome?"):
                await ask(session, agent, question, max_turns=3)
            return session.report().rows

    rows = asyncio.run(talk())
    assert len(called) == 2 and len(rows) == 4
    assert finds_the_reply_before_it(rows)


def test_runs_side_by_side_and_one_after_another_report_to_their_own_sessions(saying):
    saying.says(ANSWER)

    async def talk():
        async with AsyncClient(saying.server.url) as client:
            sessions = [CachedSession(client, f"talk {number}") for number in range(4)]
            long = [helper(f"side {number}", words=300 + 50 * number) for number in range(4)]
            pairs = list(zip(sessions, long, strict=True))
            await asyncio.gather(*(ask(*pair, "Hello?", streamed=n % 2 == 0) for n, pair in enumerate(pairs)))
            for pair in pairs:  # in one task, with a run that has no session behind each
                await ask(*pair, "And now?")
                await Runner.run(pair[1], "Nobody keeps this.", run_config=sessions[0].run_config())
            for session in sessions:
                await session.aclose()
            return [session.report().rows for session in sessions]

    tables = asyncio.run(talk())
    assert [len(rows) for rows in tables] == [2, 2, 2, 2]
    assert all(finds_the_reply_before_it(rows) for rows in tables)
    sent = [rows[0].sent for rows in tables]
    assert sent == sorted(set(sent)), "the longer the instructions, the longer the prompt"


def test_an_agent_is_announced_once_in_front_of_what_it_is_asked(saying):
    def told(agent, text, items, cut=0):
        woven = session.announced(agent, text, items, cut)
        return [item["content"] for item in woven]

    def asked(text):
        return {"role": "user", "content": text}

    def said(text):
        return {"role": "assistant", "content": text}

    with Client(saying.server.url) as client:
        session = CachedSession(client)
        items = [asked("a"), asked("b")]
        assert told("desk", "greet", items) == ["greet", "a", "b"]
        items += [said("c")]
        assert told("desk", "greet", items) == ["greet", "a", "b", "c"]
        assert told("clerk", "answer", items) == ["greet", "a", "b", "c", "answer"], "handed over"
        items += [said("d"), asked("e")]
        assert told("clerk", "answer", items) == ["greet", "a", "b", "c", "answer", "d", "e"]
        assert told("clerk", "now answer", items) == ["greet", "a", "b", "c", "answer", "d", "now answer", "e"]
        assert told("clerk", "now answer", items[4:], cut=4) == ["now answer", "e"]
        assert told("clerk", "now answer", items[2:], cut=2) == ["greet", "c", "answer", "d", "now answer", "e"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_run_inside_a_tool_is_not_the_sessions(saying, keyed):
    settings = ModelSettings(extra_args={"prompt_cache_key": "mine"} if keyed else None)
    inner = helper(f"inner {keyed}", model_settings=settings)

    async def talk():
        async with AsyncClient(saying.server.url) as client, CachedSession(client) as session:
            config = session.run_config(preamble=instructions(f"preamble {keyed}"))

            @function_tool(strict_mode=False)
            async def get_weather(city: str) -> str:
                """The weather in a city."""
                saying.says(ANSWER)
                return (await Runner.run(inner, f"And in {city}?", run_config=config)).final_output

            outer = helper(f"outer {keyed}", get_weather, model_settings=settings)
            for question in ("What is the weather in Paris?", "And now?"):
                saying.says(CALL)
                await Runner.run(outer, question, session=session, run_config=config)
            return session

    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        session = asyncio.run(talk())
    assert [item["output"] for item in session.items if "output" in item] == [ANSWER, ANSWER]
    rows = session.report().rows
    assert len(rows) == 4 and finds_the_reply_before_it(rows) and not any(row.lost for row in rows)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_reasoning_comes_back_as_it_was_and_stays_cached(tmp_path, api, streamed):
    thought = "<think>\nIs  it sunny?\n</think>\n\n"

    async def talk(model):
        @function_tool(strict_mode=False)
        def get_weather(city: str) -> str:
            """The weather in a city."""
            model.says(thought + ANSWER)
            return "sunny"

        async with AsyncClient(model.server.url) as client, CachedSession(client, api=api) as session:
            for question in ("What is the weather in Paris?", "And now?"):
                model.says(thought + "I look." + CALL)
                result = await ask(session, helper("thinker", get_weather), question, streamed=streamed)
                assert result.final_output == ANSWER
            return session

    with saying_server(tmp_path, THINKING) as model:
        session = asyncio.run(talk(model))
    thoughts = [item for item in session.items if item.get("type") == "reasoning"]
    assert len(thoughts) == 4 and all("Is  it sunny?" in json.dumps(item) for item in thoughts)
    rows = session.report().rows
    assert len(rows) == 4 and finds_the_reply_before_it(rows) and not any(row.lost for row in rows)


def test_forks_go_on_from_one_beginning_each_on_its_own(saying, tmp_path):
    saying.says(ANSWER)

    async def talk():
        path = tmp_path / "talk.jsonl"
        async with AsyncClient(saying.server.url) as client, CachedSession(client, path=path) as parent:
            agent = helper("forked")
            await ask(parent, agent, "Hello?")
            forks = parent.fork(3)
            await asyncio.gather(*(ask(fork, agent, f"Way {n}?") for n, fork in enumerate(forks)))
            return client, parent, forks

    client, parent, forks = asyncio.run(talk())
    assert [len(session.items) for session in (parent, *forks)] == [2, 4, 4, 4]
    for number, fork in enumerate(forks):
        first, second = fork.report().rows
        assert first == parent.report().rows[0] and second.cached >= first.sent and not second.lost
        assert fork.items[2]["content"] == f"Way {number}?"
        again = CachedSession(client, path=fork.path)
        assert (again.session_id, again.items, again.report().rows) == (fork.session_id, fork.items, (first, second))
    assert len({session.session_id for session in (parent, *forks)}) == 4
    with pytest.raises(ValueError, match="expected at least 1"):
        parent.fork(0)


def test_what_stands_before_a_mark_is_still_cached_after_a_rollback(saying):
    saying.says(ANSWER)

    async def talk():
        async with AsyncClient(saying.server.url) as client, CachedSession(client) as session:
            agent = helper("rolled back")
            await ask(session, agent, "Hello?")
            place = session.mark()
            await ask(session, agent, "A long way down. " * 30)
            session.rollback(place)
            assert session.mark() == place == 2
            await ask(session, agent, "Another way.")
            assert (await session.pop_item())["type"] == "message"
            assert (await session.pop_item())["content"] == "Another way."
            await ask(session, agent, "A third one.")
            with pytest.raises(ValueError, match="got 5, expected between 0 and 4 items"):
                session.rollback(5)
            await session.clear_session()
            assert await session.pop_item() is None
            return session

    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        session = asyncio.run(talk())
    report = session.report()
    first, _, third, fourth = report.rows
    assert not any(row.lost for row in report.rows)
    assert min(third.cached, fourth.cached) >= first.sent
    assert report.notes[0] == "before call 2: rolled back from 4 to 2 items"
    assert report.notes[-1] == "before call 4: the session was cleared"
    assert session.items == () and "rolled back" in str(report)


def test_a_conversation_survives_its_process_and_a_crash_in_the_middle_of_a_line(saying, tmp_path):
    saying.says(ANSWER)
    path = tmp_path / "talk.jsonl"
    agent = helper("kept")

    async def talk(text):
        async with AsyncClient(saying.server.url) as client, CachedSession(client, path=path) as session:
            await ask(session, agent, text)
            return session

    before = asyncio.run(talk("Größe? \u2028"))
    with path.open("ab") as file:
        file.write(b'{"add": [{"role": "us')
    with Client(saying.server.url) as client:
        found = CachedSession(client, path=path)
        assert (found.items, found.session_id) == (before.items, before.session_id)
        with pytest.raises(ValueError, match="but the file holds"):
            CachedSession(client, "another", path=path)
        (tmp_path / "other.jsonl").write_text('{"role": "user"}\n')
        with pytest.raises(ValueError, match="expected a session of format 1"):
            CachedSession(client, path=tmp_path / "other.jsonl")
        with pytest.raises(TypeError):
            asyncio.run(found.add_items([{"role": "user", "content": {1, 2}}]))
        assert found.items == before.items, "what could not be written was not added"
    after = asyncio.run(talk("And now?"))
    assert after.items[: len(before.items)] == before.items
    rows = after.report().rows
    assert rows[0] == before.report().rows[0] and finds_the_reply_before_it(rows)
    assert all(isinstance(json.loads(line), dict) for line in path.read_bytes().splitlines())
