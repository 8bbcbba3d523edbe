"""The SDK against the real server and a tiny random model."""

from __future__ import annotations

import asyncio
import doctest
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from live import LiveServer, drain, live_server
from tiny_folder import write_tiny_folder

import agentcache_sdk
from agentcache_sdk import AsyncClient, BadRequest, Client, ContextOverflow, NotFound, PrefixBreakWarning

TEXT = Path(agentcache_sdk.__file__).with_name("session.py").read_text("utf-8")
SYSTEM = "You read code and answer briefly. " * 6
PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "sessions.md"
GREEDY = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("sdk") / "tiny"
    corpus = (TEXT + PAGE.read_text("utf-8")).splitlines(keepends=True)
    write_tiny_folder(folder, corpus=corpus, vocab_size=1000, max_position_embeddings=1024)
    with live_server(folder, num_pages=256, home=folder.parent) as live:
        yield live
        drain(live)


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(server.url, timeout=30) as client:
        client.flush_cache()
        yield client


def test_cached_tokens_of_a_session_grow_with_every_turn(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        turns = [session.send(f"What does line {i} do?", **GREEDY) for i in range(4)]
        rows = session.report().rows
    assert turns[0].usage.cached_tokens == 0
    for before, after in itertools.pairwise(turns):
        assert after.usage.cached_tokens >= before.usage.total_tokens - 1
        assert after.cache.computed_tokens is not None
        assert after.cache.computed_tokens <= after.usage.total_tokens - after.usage.cached_tokens
    assert max(row.lost for row in rows) == 0


def test_streamed_and_plain_turns_are_equal(client: Client) -> None:
    with client.session(system=SYSTEM) as one, client.session(system=SYSTEM) as two:
        plain = one.send("What is this?", return_token_ids=True, **GREEDY)
        with two.stream("What is this?", return_token_ids=True, **GREEDY) as stream:
            text = "".join(stream)
        streamed = stream.result()
        assert one.messages == two.messages
    assert text == plain.text == streamed.text
    assert plain.token_ids == streamed.token_ids
    assert plain.usage.total_tokens == streamed.usage.total_tokens
    assert streamed.raw["prompt_token_ids"] == plain.raw["prompt_token_ids"]
    assert streamed.usage.cached_tokens == plain.usage.prompt_tokens - 1


def test_forks_share_what_they_have_in_common_and_diverge(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("Look at this.", **GREEDY)
        left, right = session.fork(2)
        turns = [
            left.send("Go left.", **GREEDY),
            right.send("Now go right.", **GREEDY),
            session.send("Go on.", **GREEDY),
        ]
        for turn in turns:
            assert turn.usage.cached_tokens >= first.usage.total_tokens - 1
        client.flush_cache()
        (fresh,) = right.fork(at_turn=1)
        with pytest.warns(PrefixBreakWarning, match="AC801 evicted"):
            cold = fresh.send("Now go right.", **GREEDY)
        assert cold.text == turns[1].text


def test_after_a_rollback_the_kept_turns_are_still_cached(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("Look at this.", **GREEDY)
        second = session.send("And then?", **GREEDY)
        session.rollback(to_turn=1)
        again = session.send("And then?", **GREEDY)
    assert again.text == second.text
    assert again.usage.prompt_tokens == second.usage.prompt_tokens
    assert again.usage.cached_tokens >= first.usage.total_tokens - 1


def test_a_cut_stream_frees_its_request_and_leaves_the_session_usable(server: LiveServer, client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        first = session.send("Look at this.", **GREEDY)
        with session.stream("Tell me everything.", temperature=0, max_tokens=600) as stream:
            next(stream)
        second = session.send("Something else.", **GREEDY)
        assert len(session.messages) == 5
    assert second.usage.cached_tokens >= first.usage.total_tokens - 1
    drain(server)


def test_a_prompt_that_is_too_long_names_both_numbers_and_costs_the_session_nothing(client: Client) -> None:
    with client.session(system=SYSTEM) as session:
        session.send("Short.", **GREEDY)
        before = session.messages
        with pytest.raises(ContextOverflow, match=r"1,?024") as caught:
            session.send("word " * 1500)
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert session.messages == before
        with pytest.raises(ContextOverflow), session.stream("word " * 1500):
            pass
        assert session.send("Short again.", **GREEDY).text


def test_errors_name_the_field(client: Client) -> None:
    with pytest.raises(BadRequest, match="temperature") as caught:
        client.chat([{"role": "user", "content": "hi"}], temperature="hot")
    assert caught.value.param == "temperature"
    with pytest.raises(NotFound) as missing:
        client.chat([{"role": "user", "content": "hi"}], model="nobody")
    assert missing.value.param == "model"


def test_several_choices_and_prompts_come_back_together(client: Client) -> None:
    turn = client.chat([{"role": "user", "content": "hi"}], n=3, temperature=0, max_tokens=4)
    assert len({choice.text for choice in turn.choices}) == 1
    assert len(turn.choices) == 3
    with client.stream_chat([{"role": "user", "content": "hi"}], n=3, temperature=0, max_tokens=4) as stream:
        assert [c.text for c in stream.result().choices] == [c.text for c in turn.choices]
    assert len(client.complete(["one", "two"], max_tokens=3).choices) == 2


def test_every_route_speaks_the_types_of_the_sdk(server: LiveServer, client: Client) -> None:
    assert client.health().status == "ok"
    assert client.version().version
    model = client.models()[0]
    assert (model.max_model_len, model.page_size) == (1024, 16)
    tokens = client.tokenize("def main() -> None:")
    assert (client.detokenize(tokens.tokens), tokens.count) == ("def main() -> None:", len(tokens.tokens))
    turn = client.chat([{"role": "user", "content": "hi"}], max_tokens=2)
    assert client.tokenize(messages=[{"role": "user", "content": "hi"}]).count == turn.usage.prompt_tokens
    state = client.cache()
    assert state.free + state.live + state.cached + state.pinned == state.total == 256
    assert client.flush_cache() == state.cached
    reply = client.openai().chat.completions.create(
        model=model.id, messages=[{"role": "user", "content": "hi"}], max_tokens=2
    )
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == turn.usage.prompt_tokens


def test_async_branches_run_at_once_and_share_the_beginning(server: LiveServer, client: Client) -> None:
    async def run() -> list[int]:
        async with AsyncClient(server.url, timeout=30) as twin, twin.session(system=SYSTEM) as session:
            first = await session.send("Look at this.", **GREEDY)
            forks = await session.fork(4)
            turns = await asyncio.gather(*(fork.send(f"Branch {i}.", **GREEDY) for i, fork in enumerate(forks)))
            return [turn.usage.cached_tokens - first.usage.total_tokens for turn in turns]

    assert min(asyncio.run(run())) >= -1, "all but the last token drawn, which was never run"


@pytest.mark.filterwarnings("error")
def documented() -> list[tuple[str, str]]:
    """Every docstring of the public names that has an example."""
    things = [agentcache_sdk, *(getattr(agentcache_sdk, name) for name in agentcache_sdk.__all__)]
    return [
        (thing.__name__, thing.__doc__)
        for thing in things
        if isinstance(thing, ModuleType | type) or callable(thing)
        if ">>>" in (thing.__doc__ or "")
    ]


@pytest.mark.parametrize(("name", "text"), documented(), ids=[name for name, _ in documented()])
@pytest.mark.filterwarnings("default")
def test_the_example_of_a_docstring_runs_as_printed(server: LiveServer, client: Client, name: str, text: str) -> None:
    example = doctest.DocTestParser().get_doctest(
        text.replace("http://127.0.0.1:8100", server.url), {}, name, None, None
    )
    output: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE).run(example, out=output.append)
    assert not output, "".join(output)
    assert example.examples
