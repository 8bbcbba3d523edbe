"""Conversations of openai-agents through ``agentcache_sdk.openai_agents``: what is cached, what is told, what is kept."""

from __future__ import annotations

import asyncio
import json
import warnings
from contextlib import asynccontextmanager

import pytest
from agent_talks import (
    ANSWER,
    CALL,
    LONG,
    ask,
    finds_the_reply_before_it,
    helper,
    in_the_runners_loop,
    instructions,
    weather,
)
from agents import Agent, ModelSettings, Runner, function_tool, handoff
from agents.memory import Session, SessionSettings
from saying import Saying, saying_server

from agentcache_sdk import AsyncClient, CacheWarning, Client, PrefixBreakWarning
from agentcache_sdk.openai_agents import CachedSession, share_tools

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
        warnings.simplefilter("error")
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
        warnings.simplefilter("error")
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
        warnings.simplefilter("error")
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


@asynccontextmanager
async def window(saying, limit, **fields):
    """A session of which runs are given the last ``limit`` items."""
    settings = SessionSettings(limit=limit)
    async with (
        AsyncClient(saying.server.url) as made,
        CachedSession(made, session_settings=settings, **fields) as session,
    ):
        yield session


def warned(record):
    """Code, place, tokens and the line of code of every warning."""
    found = []
    for entry in record:
        if not issubclass(entry.category, CacheWarning):
            continue
        assert entry.filename == __file__, "the user's file, not the framework's"
        finding = entry.message.finding
        with open(entry.filename) as file:
            line = file.read().splitlines()[entry.lineno - 1].strip()
        found.append((finding.code, finding.location.path, finding.tokens_lost, line))
    return found


def test_a_sliding_window_warns_where_the_run_was_started(saying):
    saying.says(ANSWER * 5)

    async def talk():
        async with window(saying, limit=3) as session:
            agent, config = helper("window"), session.run_config()
            await Runner.run(agent, "Hello?", session=session, run_config=config)
            assert len(await session.get_items(limit=1)) == 1  # somebody looks at the end of it: no harm in that
            await Runner.run(agent, "And now?", session=session, run_config=config)  # three items: all of them
            await Runner.run(agent, "And later?", session=session, run_config=config)  # the window slides
            await Runner.run(agent, "And then?", session=session, run_config=config)  # once is enough
        async with window(saying, limit=1, ignore="AC402") as quiet:
            await ask(quiet, helper("quiet"), LONG)
            await ask(quiet, helper("quiet"), "And now?")
        return session

    with pytest.warns(PrefixBreakWarning) as record:
        session = asyncio.run(talk())
    rows = session.report().rows
    ((code, path, tokens, line),) = warned(record)
    assert (code, path) == ("AC402", "session_settings.limit")
    assert line.endswith("# the window slides")
    assert 64 <= tokens <= rows[1].sent and rows[2].lost >= tokens
    assert rows[2].why.startswith("AC402") and rows[3].why.startswith("AC402") and "compact" in rows[2].fix


def test_warnings_can_be_errors(saying):
    saying.says(ANSWER * 5)

    async def talk(streamed):
        async with window(saying, limit=1) as session:
            for question in (LONG, "And now?"):
                await ask(session, helper(f"strict {streamed}"), question, streamed=streamed)

    for streamed in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrefixBreakWarning)
            with pytest.raises(PrefixBreakWarning, match="AC402"):
                asyncio.run(talk(streamed))


def test_the_line_is_the_users_whatever_starts_the_run(saying):
    saying.says(ANSWER * 5)
    lines = []
    for number, start in enumerate((plainly, as_a_task, in_a_stream, without_a_loop)):
        with Client(saying.server.url) as client:
            session = CachedSession(client, session_settings=SessionSettings(limit=1))
            agent = helper(f"started {number}")
            start(session, agent, LONG)
            with pytest.warns(PrefixBreakWarning) as record:
                start(session, agent, "And now?")
        ((code, _, _, line),) = warned(record)
        assert code == "AC402"
        lines.append(line)
    assert all("# here" in line for line in lines), lines


def plainly(session, agent, text):
    config = session.run_config()

    async def run():
        async with session:
            await Runner.run(agent, text, session=session, run_config=config)  # here

    asyncio.run(run())


def as_a_task(session, agent, text):
    async def run():
        run = Runner.run(agent, text, session=session, run_config=session.run_config())  # here
        async with session:
            await asyncio.create_task(run)

    asyncio.run(run())


def in_a_stream(session, agent, text):
    async def run():
        result = Runner.run_streamed(agent, text, session=session, run_config=session.run_config())  # here
        async with session:
            async for _ in result.stream_events():
                pass

    asyncio.run(run())


def without_a_loop(session, agent, text):
    config = session.run_config()
    Runner.run_sync(agent, text, session=session, run_config=config)  # here
    in_the_runners_loop(session.aclose())


def two_agents(saying: Saying, name: str) -> tuple[Agent, Agent]:
    """The first hands over to the second, which answers."""
    desk, clerk = helper(f"{name} desk", weather(saying)), helper(f"{name} clerk")
    over = handoff(clerk)
    over.strict_json_schema = False  # as of `weather`
    desk.handoffs = [over]
    return desk, clerk


def hand_over(saying: Saying, clerk: Agent) -> str:
    """What the model says to hand over; the clerk answers when it is asked for its instructions."""
    instructions = clerk.instructions

    def answering(context, agent):
        saying.says(ANSWER)
        return instructions

    clerk.instructions = answering
    name = "transfer_to_" + clerk.name.replace(" ", "_")
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_handoff_costs_the_conversation_and_says_so(saying, api):
    async def talk():
        async with AsyncClient(saying.server.url) as client, CachedSession(client, api=api) as session:
            desk, clerk = two_agents(saying, f"apart {api}")
            saying.says(ANSWER)
            await ask(session, desk, LONG)
            saying.says(hand_over(saying, clerk))
            config = session.run_config()
            result = await Runner.run(desk, "The clerk, please.", session=session, run_config=config)  # handed over
            assert result.last_agent is clerk
            saying.says(ANSWER)
            await ask(session, desk, "Back at the desk.")
            return session

    with pytest.warns(PrefixBreakWarning) as record:
        session = asyncio.run(talk())
    ((code, path, tokens, line),) = warned(record)
    rows = session.report().rows
    assert (code, path) == ("AC301", "tools")
    assert line.endswith("# handed over")
    assert rows[2].lost >= tokens > 64 and "preamble" in rows[2].why
    assert rows[3].cached >= rows[1].sent and not rows[3].lost, "the desk's own prompt is still there"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_agents_that_share_a_preamble_and_tools_hand_over_for_nothing(saying, api, tmp_path):
    async def talk():
        path = tmp_path / "talk.jsonl"
        async with AsyncClient(saying.server.url) as client, CachedSession(client, api=api, path=path) as session:
            desk, clerk = two_agents(saying, f"together {api}")
            share_tools(desk, clerk)
            assert clerk.tools == desk.tools
            assert len(clerk.handoffs) == len(desk.handoffs) == 1
            handing = hand_over(saying, clerk)
            house = instructions(f"house {api}")
            config = session.run_config(preamble=house)
            saying.says(ANSWER)
            await ask(session, desk, LONG, run_config=config)
            place = session.mark()
            for _ in range(2):
                saying.says(handing)
                assert (await ask(session, desk, "The clerk, please.", run_config=config)).last_agent is clerk
            saying.says(ANSWER)
            async with CachedSession(client, api=api, path=path) as again:  # another process goes on
                await ask(again, clerk, "Still the clerk.", run_config=again.run_config(preamble=house))
                rows = again.report().rows
                again.rollback(place)
                config = again.run_config(preamble=house)
                await ask(again, clerk, "The clerk from here.", run_config=config, streamed=True)
            return rows, again

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, session = asyncio.run(talk())
    assert len(rows) == 6
    assert finds_the_reply_before_it(rows) and not any(row.lost for row in rows)
    assert session.report().rows[-1].cached >= rows[0].sent, "the session that was rolled back goes on from its mark"
    assert not any(item.get("role") == "system" for item in session.items), (
        "the conversation itself holds no instructions"
    )
