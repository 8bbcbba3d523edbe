"""``alignment.share_points``: where the sequences that a key has sent part from this prompt."""

from __future__ import annotations

import json

from session_calls import Calls, asked, cached, random_ids

from agentcache.server.share_points import MAX_POINTS

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser."


def share_points(reply):
    return reply["agentcache"]["alignment"]["share_points"]


def common(a, b):
    return next(place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def test_sessions_with_one_system_text_part_in_the_first_user_message(client):
    replies = []
    for number, text in enumerate(("files please", "what now", "run it")):
        replies.append(client.say(client.create(system=SYSTEM + " One."), text))
        token = None if number == 0 else common(asked(replies[0]), asked(replies[-1]))
        points = [point for point in share_points(replies[-1]) if point["path"] == "messages[1].content"]
        assert points == (
            [] if token is None else [{"path": "messages[1].content", "token": token, "tail": token % 16}]
        )
    assert cached(replies[2]) == replies[2]["agentcache"]["alignment"]["share_points"][-1]["token"]


def test_a_point_is_told_whether_the_prompt_is_new_or_known(serve):
    with serve() as client:
        trunk = random_ids(40, "trunk")
        prompts = [[*trunk, number, *random_ids(20, number)] for number in range(3)]
        first = [share_points(client.server.complete(prompt, max_tokens=1)) for prompt in prompts]
        again = [share_points(client.server.complete(prompt, max_tokens=1)) for prompt in prompts]
        point = {"path": "prompt", "token": 40, "tail": 8}
        assert first == [[], [point], [point]] and again == [[point]] * 3


def test_a_point_on_a_page_boundary_has_no_tail(serve):
    with serve() as client:
        trunk = random_ids(48, "even")
        for number in range(2):
            reply = client.server.complete([*trunk, number, *random_ids(20, number)], max_tokens=1)
        assert share_points(reply) == [{"path": "prompt", "token": 48, "tail": 0}]


def test_what_begins_differently_or_only_ends_earlier_parts_nowhere(serve):
    with serve() as client:
        prompt = random_ids(60, "long")
        client.server.complete([600 % 512, *random_ids(40, "other")], max_tokens=1)
        for length in (60, 40, 33, 16, 8):
            assert share_points(client.server.complete(prompt[:length], max_tokens=1)) == []
        assert share_points(client.server.complete([*prompt, *random_ids(30, "more")], max_tokens=1)) == []


def test_of_many_places_in_a_page_the_one_where_most_part_is_told(serve):
    with serve() as client:
        trunk = random_ids(20, "many")
        for number in range(5):
            client.server.complete([*trunk, 100 + number, *random_ids(20, number)], max_tokens=1)
        client.server.complete([*trunk, 7, 7, *random_ids(20, "near")], max_tokens=1)
        reply = client.server.complete([*trunk, 7, 8, *random_ids(20, "mine")], max_tokens=1)
        assert share_points(reply) == [{"path": "prompt", "token": 20, "tail": 4}]
        assert cached(reply) == 21  # which is not where the cache ends: one of the others goes on a little longer


def test_many_points_are_cut_to_the_ones_where_most_part(serve):
    with serve() as client:
        prompt = random_ids(16 * 14, "bounded")
        for page in range(12):
            for way in range(2 if page == 3 else 1):
                other = prompt[: page * 16 + 5]
                client.server.complete(
                    [*other, (prompt[len(other)] + 1 + way) % 512, *random_ids(30, way)], max_tokens=1
                )
        points = share_points(client.server.complete(prompt, max_tokens=1))
        tokens = [point["token"] for point in points]
        assert len(points) == MAX_POINTS and 3 * 16 + 5 in tokens and tokens == sorted(tokens)
        assert all(point["tail"] == 5 for point in points)


def test_forks_of_a_session_part_where_they_went_on(client):
    session = client.create(prompt=random_ids(50, "forked"))
    client.go_on(session, [], 9)
    left, right = client.fork(session, 2)
    client.go_on(left, [1, 2, 3], 4)
    assert share_points(client.go_on(right, [4, 5, 6], 4)) == [{"path": "prompt", "token": 59, "tail": 11}]
    assert share_points(client.go_on(left, [7], 4)) == [{"path": "prompt", "token": 59, "tail": 11}]


def test_streams_say_the_same(client):
    trunk = random_ids(37, "streamed")
    client.server.complete([*trunk, 1, *random_ids(20, 1)], max_tokens=1)
    body = {"prompt": [*trunk, 2, *random_ids(20, 2)], "max_tokens": 3, "stream": True}
    with client.server.http.stream("POST", "/v1/completions", json=body) as reply:
        lines = [line for line in reply.iter_lines() if line.startswith("data: {")]
    report = json.loads(lines[-1].removeprefix("data: "))["agentcache"]
    assert report["alignment"]["share_points"] == [{"path": "prompt", "token": 37, "tail": 5}]


def test_other_salts_and_keys_tell_nothing(serve):
    with serve(api_keys=("key-one", "key-two")) as client:
        one, two = Calls(client.server, "key-one"), Calls(client.server, "key-two")
        ways = [[*random_ids(40, "secret"), number, *random_ids(20, number)] for number in range(3)]

        def ask(caller, prompt, **fields):
            return share_points(caller.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1, **fields}))

        assert ask(one, ways[0]) == [] and ask(one, ways[1], cache_salt="s") == []
        assert ask(two, ways[1]) == [] and ask(two, ways[0], cache_salt="s") == []
        assert ask(one, ways[2]) == ask(two, ways[2]) == [{"path": "prompt", "token": 40, "tail": 8}]


def test_without_a_cache_there_are_no_points(serve):
    with serve(prefix_cache=False) as client:
        for number in range(2):
            reply = client.server.complete([*random_ids(40, "off"), number, *random_ids(9, number)], max_tokens=1)
        assert share_points(reply) == []
