"""Snapshots outlive the server, and are refused where their ids would mean something else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from session_calls import asked, random_ids, said

SYSTEM = "You are a helpful agent."


def files(home: Path) -> list[Path]:
    return sorted((home / "snapshots").rglob("*.json"))


def test_a_snapshot_survives_a_restart(serve, reference, tmp_path):
    with serve() as client:
        chat = client.create(system=SYSTEM, metadata={"task": 1}, ttl_s=100)
        replies = [client.say(chat, f"question {n}", max_tokens=12) for n in range(2)]
        raw = client.create(prompt=random_ids(50, "raw"))
        text = client.go_on(raw, [], 9)
        saved = client.do(chat, "snapshot", name="after-triage")
        assert saved["tokens"] == client.get(chat)["tokens"] and saved["turns"] == 2
        client.do(raw, "snapshot", name="raw.1")
        before = client.say(chat, "and now")
    assert len(files(tmp_path / "home")) == 2 and not list((tmp_path / "home").rglob(".writing*"))

    with serve() as client:
        restored = client.call("POST", "/v1/sessions", {"from_snapshot": "after-triage"})
        assert restored["id"] != chat and restored["metadata"] == {"task": 1} and restored["ttl_s"] == 100
        assert [turn["completion_tokens"] for turn in restored["turns"]] == [12, 12]
        after = client.say(restored["id"], "and now")
        assert asked(after) == asked(before) and said(after) == said(before) == reference.greedy(asked(after), 8)
        client.do(restored["id"], "rollback", to_turn=1)
        again = client.say(restored["id"], "question 1", max_tokens=12)
        assert asked(again) == asked(replies[1]) and said(again) == said(replies[1])
        more = client.go_on(client.create(from_snapshot="raw.1"), [5], 4)
        assert asked(more) == asked(text) + said(text) + [5]


def test_a_snapshot_of_a_running_session_holds_its_finished_turns(serve):
    with serve() as client:
        session = client.create(system=SYSTEM)
        client.say(session, "one")
        body = {"session": session, "messages": [{"role": "user", "content": "two"}], "max_tokens": 500, "stream": True}
        with client.server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            next(reply.iter_lines())
            assert client.do(session, "snapshot", name="mid")["turns"] == 1


def test_a_snapshot_of_another_model_or_template_is_refused_with_both_values(serve, tiny, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny[0], other)
    config = json.loads((other / "tokenizer_config.json").read_text("utf-8"))
    config["chat_template"] = config["chat_template"].replace("\n", "\n\n")
    (other / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    with serve() as client:
        client.do(client.create(system=SYSTEM), "snapshot", name="chat")
    (path,) = files(tmp_path / "home")
    was = json.loads(path.read_text("utf-8"))
    with serve(other) as client:
        error = client.refused(422, "POST", "/v1/sessions", {"from_snapshot": "chat"})
        assert error["code"] == "session_diverged" and "chat template" in error["message"]
        assert was["template"] in error["message"] and error["message"].count("has") == 2
    path.write_text(json.dumps(was | {"revision": "feed5eed"}), "utf-8")
    with serve() as client:
        error = client.refused(422, "POST", "/v1/sessions", {"from_snapshot": "chat"})
        assert "model revision" in error["message"] and "feed5eed" in error["message"]


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"format": 1}', '{"format": 99}', "\x00" * 50])
def test_a_damaged_snapshot_is_said_to_be_damaged(serve, tmp_path, damage):
    with serve() as client:
        client.do(client.create(system=SYSTEM), "snapshot", name="x")
        (path,) = files(tmp_path / "home")
        path.write_text(damage, "utf-8")
        error = client.refused(500, "POST", "/v1/sessions", {"from_snapshot": "x"})
        assert error["code"] == "snapshot_failed" and str(path) not in error["message"]
        client.do(client.create(system=SYSTEM), "snapshot", name="x")
        client.create(from_snapshot="x")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "x" * 65, "a b", "ä", "x\n", None, 5])
def test_a_name_of_other_characters_is_refused(client, name):
    session = client.create(system=SYSTEM)
    assert client.refused(400, "POST", f"/v1/sessions/{session}/snapshot", {"name": name})["param"] == "name"


@pytest.mark.parametrize("name", [".", "..", "x" * 64, "A-z_0.9"])
def test_every_allowed_name_works(client, name):
    session = client.create(system=SYSTEM)
    client.do(session, "snapshot", name=name)
    client.create(from_snapshot=name)
    assert client.refused(404, "POST", "/v1/sessions", {"from_snapshot": "none"})["code"] == "snapshot_not_found"
