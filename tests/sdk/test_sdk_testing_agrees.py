"""The fake engine answers as the real server does: the same calls to both, and what comes back compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testing_places import (
    Place,
    answered,
    difference,
    failed,
    fake_place,
    held,
    missed,
    real_place,
    seen,
    shape,
    without_ids,
)

from agentcache_sdk import APIError, NotFound, SessionDiverged
from agentcache_sdk.testing import call

LONG = "Answer in few words, and never guess what you can look up in the files that you are given. " * 3


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with real_place(tmp_path_factory.mktemp("saying")) as place:
        yield place


@pytest.fixture(scope="module")
def fake() -> Iterator[Place]:
    with fake_place() as place:
        yield place


def read_file(path: str) -> str:
    """Read a file."""
    return path


def run_tests(only: str = "") -> str:
    """Run the tests."""
    return only


def turns_of_a_session(place: Place) -> Iterator[Any]:
    with place.client.session(system=f"Turns. {LONG}") as session:
        before = None
        for text in ("Which files are there?", "And why?", "Thank you."):
            turn = session.send(text)
            yield seen(turn, before)
            before = turn
        yield held(session, place)
        with session.stream("Once more.") as stream:
            text = "".join(stream)
        yield text, seen(stream.result(), before)
        yield [message["role"] for message in session.messages]


def replies_that_are_cut(place: Place) -> Iterator[Any]:
    place.says("One two three four five six seven eight nine ten, and so on.")
    with place.client.session(system=f"Cut. {LONG}") as session:
        cut = session.send("Count.", max_tokens=4)
        yield cut.finish_reason, cut.usage.completion_tokens
        after = session.send("Go on.")
        yield seen(after, cut)
        stopped = session.send("Again.", stop=["five", "four"])
        yield stopped.text, stopped.finish_reason, stopped.choices[0].model_extra


def tools_and_their_results(place: Place) -> Iterator[Any]:
    with place.client.session(system=f"Tools. {LONG}", tools=[read_file, run_tests]) as session:
        place.says([call("read_file", path="a.py"), call("run_tests", only="x")])
        turn = session.send("Look at it.")
        yield seen(turn)
        for made in turn.tool_calls:
            session.tool_result(made.id, f"result of {made.name}")
        place.says("Done.")
        yield seen(session.send(), turn)
        yield held(session, place)
        place.says([call("read_file", path="b.py")])
        with session.stream("Again.") as stream:
            list(stream)
        yield [(made.name, made.args) for made in stream.result().tool_calls], stream.result().finish_reason


def tools_that_come_later(place: Place) -> Iterator[Any]:
    later = {"type": "function", "function": {"name": "later", "parameters": {"type": "object", "properties": {}}}}
    other = {"type": "function", "function": {"name": "later", "description": "Other.", "parameters": {}}}
    with place.client.session(system=f"Later tools. {LONG}", tools=[read_file]) as session:
        before = session.send("Hello.")
        body = {"session": session.id, "messages": [{"role": "user", "content": "Now."}], "tools": [later]}
        told = place.http.post("/v1/chat/completions", json=body).json()
        report = told["agentcache"]
        yield report["miss"]["code"], report["miss"]["message_index"], report["miss"]["path"]
        yield report["cached_tokens"] - before.usage.prompt_tokens - before.usage.completion_tokens
        yield held(session, place)
        yield answered(place.http.post("/v1/chat/completions", json=body | {"tools": [other]}))
        yield answered(place.http.post("/v1/chat/completions", json=body | {"messages": [], "tools": [other]}))
        yield held(session, place)["turns"]


def a_history_that_is_sent_each_time(place: Place) -> Iterator[Any]:
    history: list[dict[str, Any]] = [{"role": "system", "content": f"History. {LONG}"}]
    before = None
    for text in ("Which files are there?", "And why?"):
        history.append({"role": "user", "content": text})
        turn = place.client.chat(history)
        yield seen(turn, before)
        history.append(dict(turn.message))
        before = turn
    edited = [history[0], {"role": "user", "content": "Which folders are there?"}, *history[2:]]
    yield missed(place.client.chat([*edited, {"role": "user", "content": "Hm?"}]))
    yield missed(place.client.chat([{"role": "system", "content": f"History, at noon. {LONG}"}, *history[1:2]]))
    dropped = [history[0], *history[3:]]
    yield missed(place.client.chat([*dropped, {"role": "user", "content": "Hm?"}]))


def calls_in_a_history(place: Place) -> Iterator[Any]:
    place.says([call("read_file", path="a.py", limit=3)])
    tools = [read_file]
    history: list[dict[str, Any]] = [
        {"role": "system", "content": f"Calls. {LONG}"},
        {"role": "user", "content": "Look at it."},
    ]
    turn = place.client.chat(history, tools=tools)
    made = turn.tool_calls[0]
    spaced = json.dumps({"limit": 3, "path": "a.py"}, indent=1)
    function = {"name": "read_file", "arguments": spaced}
    calls = [{"id": "call_other", "type": "function", "function": function}]
    history += [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_other", "content": "x = 1"},
    ]
    place.says("Done.")
    yield made.args, seen(place.client.chat(history, tools=tools), turn)
    yield missed(place.client.chat(history, tools=[run_tests]))


def forks(place: Place) -> Iterator[Any]:
    with place.client.session(system=f"Forks. {LONG}") as session:
        first = session.send("Read this.")
        second = session.send("And this.")
        left, right = session.fork(2)
        yield seen(left.send("Argue for tabs, please."), second)
        argued = right.send("Argue for spaces, please.")
        yield {**missed(argued), "shares": argued.usage.cached_tokens >= second.usage.prompt_tokens}
        (early,) = session.fork(1, at_turn=1)
        yield missed(early.send("Something else.")), early.mark()
        (bare,) = session.fork(1, at_turn=0)
        yield missed(bare.send("Read this.")), bare.mark()
        yield held(left, place), held(early, place)["turns"], held(session, place)["turns"]
        created = place.http.post(f"/v1/sessions/{session.id}/fork", json={"n": 2})
        yield answered(created)
        for body in ({"n": 0}, {"n": 1, "at_turn": 7}, {"n": 1, "at_turn": -1}, {"n": 300}):
            yield answered(place.http.post(f"/v1/sessions/{session.id}/fork", json=body))
        yield first.text
        for fork in (left, right, early, bare):
            fork.close()


def adopting(place: Place) -> Iterator[Any]:
    def adopt(into: Any, **body: Any) -> dict[str, Any]:
        return answered(place.http.post(f"/v1/sessions/{into.id}/adopt", json=body))

    with place.client.session(system=f"Adopt. {LONG}") as session, place.client.session(f"Other. {LONG}") as other:
        session.send("Begin.")
        other.send("Begin.")
        left, right, third = session.fork(3)
        left.send("Left.")
        turn = right.send("Right.")
        session.send("Here.")
        yield adopt(session, session=third.id, if_turns=1)
        yield adopt(session, session=right.id), adopt(session, session=right.id)
        again = place.client.resume(str(session.id))
        yield seen(again.send("Go on."), turn)
        yield held(session, place)
        yield adopt(session, session=other.id), adopt(session, session=session.id), adopt(session, session="none")
        yield answered(place.http.get(f"/v1/sessions/{right.id}")), adopt(session)
        names = [event["event"] for event in again.explain().events]
        yield names


def rollbacks_and_conditions(place: Place) -> Iterator[Any]:
    def roll(session: Any, **body: Any) -> dict[str, Any]:
        return answered(place.http.post(f"/v1/sessions/{session.id}/rollback", json=body))

    def turn(session: Any, **body: Any) -> int:
        message = {"role": "user", "content": "Hello."}
        return place.http.post(
            "/v1/chat/completions", json={"session": session.id, "messages": [message], **body}
        ).status_code

    with place.client.session(system=f"Rollback. {LONG}") as session:
        first = session.send("One.")
        session.send("Two.")
        session.rollback(to_turn=1)
        yield seen(session.send("Two, again."), first)["miss"], held(session, place)
        yield [turn(session, turn_id="me.1"), turn(session, if_turns=1), turn(session, if_turns=3)]
        yield roll(session, to_turn=3, only_turn_id="me.1"), roll(session, to_turn=9), roll(session)
        yield roll(session, to_turn=1, if_turns=2), roll(session, to_turn=3, if_turns=2)
        yield roll(session, to_turn=2, only_turn_id="me.1", if_turns=4), roll(session, to_turn=-1)
        try:
            session.send("I have not seen those.")
        except SessionDiverged as error:
            yield failed(error)
        yield held(session, place)["turns"]


def leases(place: Place) -> Iterator[Any]:
    def verb(name: str, **body: Any) -> dict[str, Any]:
        return answered(place.http.post(f"/v1/sessions/{session.id}/{name}", json=body))

    with place.client.session(system=f"Leases. {LONG}") as session:
        before = session.send("Look.")
        yield verb("wait", tool="pytest", expect_s=4), held(session, place)["pinned"]
        place.client.flush_cache()
        kept = session.send("Still there?")
        yield seen(kept, before)
        yield verb("unpin"), held(session, place)["pinned"]
        place.client.flush_cache()
        yield missed(session.send("And now?"))
        yield (
            verb("pin", ttl_s=60),
            verb("pin"),
            verb("pin", ttl_s=0),
            verb("wait", ttl_s=-1),
            verb("wait", expect_s=-1),
        )
        yield verb("pin", ttl_s=60), verb("wait", tool="x", expect_s=1), verb("wait")
        place.advance(400)
        yield held(session, place)["pinned"]
        place.client.flush_cache()
        yield missed(session.send("And after that?"))
        explained = session.explain()
        yield [event["event"] for event in explained.events]
        yield shape({key: value for key, value in explained.model_dump(exclude_unset=True).items() if key == "cached"})
        assert explained.cached is not None
        yield explained.cached.miss, explained.tokens - explained.cached.tokens


def snapshots(place: Place) -> Iterator[Any]:
    with place.client.session(system=f"Snapshot. {LONG}", metadata={"task": 7}) as session:
        turn = session.send("Remember this.")
        yield answered(place.http.post(f"/v1/sessions/{session.id}/snapshot", json={"name": "here"}))
        yield answered(place.http.post(f"/v1/sessions/{session.id}/snapshot", json={"name": "not/here"}))
        yield answered(place.http.post(f"/v1/sessions/{session.id}/snapshot", json={}))
        session.send("Not this.")
    with place.client.restore("here") as copy:
        yield seen(copy.send("What?"), turn)["text"], held(copy, place)
        yield copy.explain().metadata, [event["event"] for event in copy.explain().events]
    for name in ("nowhere", "not/here"):
        try:
            place.client.restore(name).open()
        except APIError as error:
            yield failed(error)
    yield answered(place.http.post("/v1/sessions", json={"from_snapshot": "here", "system": "x"}))


def sessions_that_end(place: Place) -> Iterator[Any]:
    with (
        place.client.session(system=f"Ends. {LONG}", ttl=60) as session,
        place.client.session("Stays.", ttl=9e3) as other,
    ):
        session.send("Hello.")
        place.advance(50)
        yield len([info for info in place.client.sessions() if info.id in (session.id, other.id)])
        session.send("Still?")
        place.advance(50)
        session.send("Still?")
        place.advance(61)
        try:
            place.client.resume(str(session.id)).open()
        except NotFound as error:
            yield failed(error)
        yield [info.id == other.id for info in place.client.sessions() if info.id in (session.id, other.id)]
        yield answered(place.http.get("/v1/sessions"))
        yield answered(place.http.delete(f"/v1/sessions/{other.id}"))
        yield answered(place.http.delete(f"/v1/sessions/{other.id}"))
        yield answered(place.http.post(f"/v1/sessions/{other.id}/fork", json={}))
        yield answered(place.http.post(f"/v1/sessions/{other.id}/nothing", json={}))


def raw_sessions(place: Place) -> Iterator[Any]:
    place.says(" and on it went")
    with place.client.session(prompt=f"Raw. {LONG}") as session:
        first = session.send(max_tokens=60)
        yield seen(first)
        second = session.send(" until the end.")
        yield second.text, second.usage.cached_tokens - first.usage.prompt_tokens - first.usage.completion_tokens
        yield held(session, place)
        with session.stream(" Then") as stream:
            yield "".join(stream), shape(stream.result().raw)
        yield answered(place.http.post("/v1/chat/completions", json={"session": session.id, "messages": []}))
        for prompt in (["a", "b"], [[]], 7):
            yield answered(place.http.post("/v1/completions", json={"session": session.id, "prompt": prompt}))
    yield answered(place.http.post("/v1/sessions", json={"prompt": "x", "system": "y"}))


def completions(place: Place) -> Iterator[Any]:
    place.says(" and so on")
    first = place.client.complete(f"Completions. {LONG}")
    yield seen(first)
    yield missed(place.client.complete(f"Completions. {LONG}"))
    several = place.client.complete(["One, two", "Red, green"], n=2)
    yield [choice.text for choice in several.choices], shape(several.raw)
    echoed = place.client.complete("Once", echo=True)
    yield echoed.text
    chats = place.client.chat([{"role": "system", "content": f"Several. {LONG}"}], n=3)
    yield len(chats.choices), shape(chats.raw), chats.usage.completion_tokens % 3
    ids = place.client.complete(f"Ids. {LONG}", return_token_ids=True)
    yield shape(ids.raw), len(ids.token_ids or ()) - ids.usage.completion_tokens
    yield len(ids.raw["prompt_token_ids"]) - ids.usage.prompt_tokens


def what_the_sdk_makes_of_it(place: Place) -> Iterator[Any]:
    client, system = place.client, f"On top. {LONG}"
    first, again = client.prewarm(system, [read_file]), client.prewarm(system, [read_file])
    yield first.cached_tokens, first.tokens == first.computed_tokens, again.computed_tokens
    with client.session(system, [read_file]) as session:
        place.says([call("read_file", path="a.py")])
        result = session.run("Look at it.", max_turns=2)
        yield result.turns[0].usage.cached_tokens >= first.tokens
        yield result.stopped, [run.content for run in result.tool_runs], seen(result.turns[1], result.turns[0])
        place.says("Done.")
        answer = session.run()
        yield answer.text, seen(answer.turn, result.turn)
        session.add_tools(run_tests)
        yield seen(session.send("Run the tests."), answer.turn), held(session, place)
        (fork,) = session.fork(1)
        on_the_fork = fork.send("Try something.")
        session.adopt(fork)
        yield seen(session.send("Good."), on_the_fork), held(session, place)
        done = session.compact("It was all about tests.")
        yield done.turns_dropped, done.turns_kept, [without_ids(message) for message in session.messages]
        after = session.send("Go on.")
        yield after.usage.cached_tokens >= first.tokens, held(session, place)
    with client.session(f"Padded. {LONG}", pad="system") as session:
        turn = session.send("Hello.")
        with client.session(f"Padded. {LONG}", pad="system") as other:
            yield other.send("How are you?").usage.cached_tokens % 16, turn.text


def salts(place: Place) -> Iterator[Any]:
    messages = [{"role": "system", "content": f"Salt. {LONG}"}, {"role": "user", "content": "Hello."}]
    for salt in ("a", "a", "b", None):
        turn = place.client.chat(messages, cache_salt=salt)
        yield missed(turn), turn.usage.cached_tokens > 0


def chunks_of_streams(place: Place) -> Iterator[Any]:
    place.says("One two three.")
    messages = [{"role": "system", "content": f"Chunks. {LONG}"}, {"role": "user", "content": "Count."}]
    yield chunks(place, "/v1/chat/completions", messages=messages)
    yield chunks(place, "/v1/chat/completions", messages=messages, stream_options={"include_usage": True})
    yield chunks(place, "/v1/chat/completions", messages=messages, return_token_ids=True)
    yield chunks(place, "/v1/completions", prompt="One")
    yield chunks(place, "/v1/completions", prompt="One", stream_options={"include_usage": True})
    place.says([call("read_file", path="a.py")])
    body = {"messages": messages, "tools": [{"type": "function", "function": {"name": "read_file"}}]}
    yield chunks(place, "/v1/chat/completions", **body)


def chunks(place: Place, path: str, **body: Any) -> list[Any]:
    """Shapes of the first chunk, of all that bring a piece of the reply, and of those that end it."""
    with place.http.stream("POST", path, json={**body, "stream": True}) as reply:
        kind = reply.headers["content-type"].partition(";")[0]
        lines = [line for line in reply.iter_lines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    bringing = [event for event in events if event["choices"] and event["choices"][0]["finish_reason"] is None]
    ending = [event for event in events if event not in bringing]
    pieces = set().union(*map(shape, bringing[1:] or bringing))
    return [kind, lines[-1], shape(events[0]), pieces, [shape(event) for event in ending], events.index(ending[0]) > 0]


def what_the_server_tells(place: Place) -> Iterator[Any]:
    messages = [{"role": "user", "content": "Hello."}]
    yield answered(place.http.post("/tokenize", json={"prompt": "Hello world"}))
    yield place.client.detokenize(place.client.tokenize("Hello world, said Ünal.").tokens)
    ids = place.client.tokenize(messages=messages).tokens
    asked = place.http.post("/v1/chat/completions/render", json={"messages": messages}).json()
    yield (
        asked["token_ids"] == ids,
        shape(asked),
        asked["count"] - len(ids),
        asked["offsets"][-1][1] - len(asked["text"]),
    )
    yield answered(place.http.post("/tokenize", json={})), answered(place.http.post("/detokenize", json={}))
    card = place.http.get("/v1/models").json()["data"][0]
    yield (
        {key: isinstance(card[key], int) for key in ("created", "max_model_len", "page_size")},
        card["id"] == place.model,
    )
    yield answered(place.http.get("/health")), answered(place.http.get("/version"))
    state = place.client.cache()
    yield state.free + state.live + state.cached + state.pinned - state.total, state.page_size
    yield shape(place.http.get("/v1/cache").json()), answered(place.http.post("/v1/cache/flush", json={}))
    yield answered(place.http.get("/v1/nothing")), answered(place.http.post("/v1/chat", json={}))


def what_is_refused(place: Place) -> Iterator[Any]:
    def ask(path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
        return answered(place.http.post(path, json=body))

    messages = [{"role": "user", "content": "Hello."}]
    for field in (
        {"temperature": -1}, {"temperature": "hot"}, {"top_p": 0}, {"n": 0}, {"max_tokens": 0}, {"max_tokens": -3},
        {"stream_options": {"include_usage": True}}, {"model": "another"}, {"session": "none"}, {"presence_penalty": 3},
    ):  # fmt: skip
        yield field, ask(messages=messages, **field)
    yield ask(), ask(messages=[]), ask(messages="Hello."), ask(messages=[{"role": "robot", "content": "Hi"}])
    yield ask(messages=[{"content": "Hi"}]), ask(messages=[{"role": "user", "content": "word " * 9000}])
    yield ask("/v1/completions"), ask("/v1/completions", prompt=""), ask("/v1/completions", prompt=[])
    for body in ({"ttl_s": 0}, {"ttl_s": 1e9}, {"model": "another"}, {"system": "word " * 9000}):
        yield ask("/v1/sessions", **body)
    yield answered(place.http.get("/v1/sessions?include=nothing"))
    yield answered(place.http.post("/v1/completions", content=b"[1]", headers={"content-type": "application/json"}))
    with place.client.session(system="Refusals.") as session:
        yield ask(session=session.id, messages=messages, n=2), ask(session=session.id, messages=messages, if_turns=-1)
        yield ask("/v1/completions", session=session.id, prompt="x")
        session.send("Hello.")
        yield ask(session=session.id, messages=[])


SCENARIOS: list[Callable[[Place], Iterator[Any]]] = [
    turns_of_a_session, replies_that_are_cut, tools_and_their_results, tools_that_come_later,
    a_history_that_is_sent_each_time, calls_in_a_history, forks, adopting, rollbacks_and_conditions, leases, snapshots,
    sessions_that_end, raw_sessions, completions, what_the_sdk_makes_of_it, salts,
    chunks_of_streams, what_the_server_tells, what_is_refused,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")
def test_the_fake_answers_as_the_server_does(
    scenario: Callable[[Place], Iterator[Any]], fake: Place, real: Place
) -> None:
    outcomes = []
    for place in (fake, real):
        place.says("Fine.")
        place.client.flush_cache()
        outcomes.append(list(scenario(place)))
    for step, (ours, theirs) in enumerate(zip(*outcomes, strict=True)):
        assert ours == theirs, f"step {step} of {scenario.__name__}: {difference(ours, theirs)}"
