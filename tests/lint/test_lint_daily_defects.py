"""Defects of every day: each is told once, with its place and exact loss, and a server measures what was predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clean_traffic import SHAPES
from daily_defects import DEFECTS
from lint_workloads import write_jsonl
from live import live_server

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.lint.cli import main


def lint(capsys, printing_model: Path, file: Path, *flags: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main(
        [
            str(file),
            "--tokenizer",
            str(printing_model),
            "--ignore",
            "AC5",
            "--output-format",
            "json",
            "--statistics",
            *flags,
        ]
    )
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_is_told_once_with_its_place(defect, printing_model, tmp_path, capsys):
    file = write_jsonl(tmp_path / "run.jsonl", defect.requests)
    code, said = lint(capsys, printing_model, file)
    [finding] = said["findings"]
    assert (code, finding["code"], finding["confidence"]) == (1, defect.code, "confirmed")
    where = finding["location"]
    assert where["record"] in (2, 3) and finding["compared_to"] == f"{file}:{where['record'] - 1}"
    if defect.path is not None:
        assert where["path"] == defect.path
    if defect.severity is not None:
        assert finding["severity"] == defect.severity
    # The first token that differs, counted by itself.
    renderer = ChatRenderer(Tokenizer.from_folder(printing_model))
    earlier, later = (
        renderer.render(body["messages"], tools=body.get("tools")).token_ids
        for body in (defect.requests[where["record"] - 2], defect.requests[where["record"] - 1])
    )
    assert where["token"] == next(i for i, (a, b) in enumerate(zip(earlier, later, strict=False)) if a != b)
    if where["path"].endswith(".content") and where["char"] is not None:
        texts = [json.loads(line)["messages"] for line in file.read_text("utf-8").splitlines()]
        index = int(where["path"].split("[")[1].split("]")[0])
        before, after = (texts[where["record"] - n][index]["content"] for n in (2, 1))
        shared = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        assert where["char"] == shared
    assert 0 < finding["tokens_lost"] <= sum(p["prompt_tokens"] for p in said["statistics"]["predictions"][1:])


def test_what_is_in_order_is_clean(printing_model, tmp_path, capsys):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    one = write_jsonl(tmp_path / "one.jsonl", SHAPES["plain"]()[:1])
    growing = write_jsonl(tmp_path / "growing.jsonl", SHAPES["tool_calls"]())
    for file in (tmp_path / "empty.jsonl", one, growing):
        code, said = lint(capsys, printing_model, file)
        assert (code, said["findings"]) == (0, [])


def test_a_broken_line_is_named_and_the_rest_is_linted(printing_model, tmp_path, capsys):
    lines = [json.dumps(body) for body in DEFECTS[0].requests]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join([*lines[:2], '{"messages": [', *lines[2:]]) + "\n", "utf-8")
    code, said = lint(capsys, printing_model, file)
    assert code == 2
    assert [(f["code"], f["location"]["record"]) for f in said["findings"]] == [("AC101", 2), ("AC903", 3)]


def test_a_server_measures_what_was_predicted_of_defects(printing_model, tmp_path, capsys):
    bodies = [
        {**body, "cache_salt": defect.name, "model": printing_model.name}
        for defect in DEFECTS
        for body in defect.requests
    ]
    _, said = lint(capsys, printing_model, write_jsonl(tmp_path / "run.jsonl", bodies))
    predicted = [figures["cached_tokens"] for figures in said["statistics"]["predictions"]]
    with live_server(printing_model, num_pages=8192) as server:
        replies = [server.chat(body.pop("messages"), **body, max_tokens=1) for body in bodies]
    assert [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies] == predicted
