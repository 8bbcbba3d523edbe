"""What openai-agents' sessions on an agentcache server warn of, and where: sliding windows and handoffs."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager

import pytest
from agent_talks import ANSWER, LONG, ask, finds_the_reply_before_it, helper, in_the_runners_loop, instructions, weather
from agents import Agent, Runner, handoff
from agents.memory import SessionSettings
from saying import Saying, saying_server

from agentcache_sdk import AsyncClient, CacheWarning, Client, PrefixBreakWarning
from agentcache_sdk.openai_agents import CachedSession, share_tools


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with saying_server(tmp_path_factory.mktemp("saying")) as made:
        yield made


@pytest.fixture
def saying(model):
    """With nothing in its cache: no test pushes out, or is compared with, what another one sent."""
    model.server.http.post("/v1/cache/flush").raise_for_status()
    return model


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
        warnings.simplefilter("error", CacheWarning)
        rows, session = asyncio.run(talk())
    assert len(rows) == 6
    assert finds_the_reply_before_it(rows) and not any(row.lost for row in rows)
    assert session.report().rows[-1].cached >= rows[0].sent, "the session that was rolled back goes on from its mark"
    assert not any(item.get("role") == "system" for item in session.items), (
        "the conversation itself holds no instructions"
    )
