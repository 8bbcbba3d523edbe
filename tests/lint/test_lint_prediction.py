"""What the linter predicts is what the server reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lint_workloads import INSTRUCTIONS, STAMPS, chat, recount, write_jsonl
from live import live_server

from agentcache.cache.hashing import namespace_root
from agentcache.cache.manager import CacheManager
from agentcache.cache.tokens import PagedTokens
from agentcache.lint.cli import main
from agentcache.lint.prefix_index import PrefixIndex, predict_cached_tokens
from agentcache.model.hub import resolve_model
from agentcache.settings import default_home


@st.composite
def workloads(draw) -> list[list[int]]:
    """Prompts that continue, repeat, cut and change each other."""
    prompts: list[list[int]] = [draw(st.lists(st.integers(0, 2), min_size=1, max_size=24))]
    for _ in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(prompts))
        cut = draw(st.integers(0, len(base)))
        prompts.append((base[:cut] + draw(st.lists(st.integers(0, 2), max_size=24))) or [1])
    return prompts


@settings(max_examples=300, deadline=None)
@given(workloads(), st.sampled_from([1, 2, 4, 7]))
def test_the_prediction_equals_a_plain_recount(prompts, page_size):
    assert predict_cached_tokens(prompts, page_size) == recount(prompts)


@settings(max_examples=200, deadline=None)
@given(workloads(), st.sampled_from([1, 2, 4, 7]))
def test_the_prediction_equals_the_leases_of_the_server(prompts, page_size):
    manager = CacheManager(512, page_size)
    measured = []
    for prompt in prompts:
        lease = manager.acquire(PagedTokens(prompt, page_size, namespace_root("model")))
        lease.take_copies()
        measured.append(lease.cached_tokens)
        lease.commit(len(prompt))
        lease.release()
    assert predict_cached_tokens(prompts, page_size) == measured


def test_other_namespaces_share_nothing():
    index = PrefixIndex(4)
    for salt in ("a", "b"):
        tokens = PagedTokens(range(12), 4, namespace_root(salt))
        assert index.match(tokens).tokens == 0
        index.publish(tokens, 0)
        assert index.match(tokens).tokens == 11


def workload() -> list[dict]:
    """Two growing chats with one system text, a clock, a repeated request, tools, and a chat that shares nothing."""
    tool = {"type": "function", "function": {"name": "read_file", "description": "Read a file.", "parameters": {}}}
    requests = chat(lambda turn: INSTRUCTIONS) + chat(lambda turn: INSTRUCTIONS, task="Write the docs.", turns=2)
    requests += chat(lambda turn: f"It is {STAMPS['second'][turn]}. {INSTRUCTIONS}", task="Answer the mail.", turns=2)
    requests += [requests[0], requests[2]]
    requests += [
        {**request, "tools": [tool]} for request in chat(lambda turn: INSTRUCTIONS, task="List files.", turns=2)
    ]
    requests += [{"messages": [{"role": "user", "content": "An unrelated question about the weather in 1816?"}]}]
    return [{key: value for key, value in request.items() if key != "model"} for request in requests]


def predictions(file: Path, folder: Path, capsys) -> list[int]:
    capsys.readouterr()
    main([str(file), "--tokenizer", str(folder), "--output-format", "json", "--statistics"])
    return [p["cached_tokens"] for p in json.loads(capsys.readouterr().out)["statistics"]["predictions"]]


def tiny_model(folder: Path) -> Path:
    """A tiny model with a tokenizer of its own."""
    from tiny_folder import write_tiny_folder

    write_tiny_folder(folder)
    return folder


def tiny_model_that_reads_like_smollm2(folder: Path) -> Path:
    """Random weights behind the default model's tokenizer and template: prompts are cut as they are for the real one."""
    from tiny_folder import tiny_llama

    default = resolve_model("smollm2", default_home()).folder
    tiny_llama(vocab_size=49152, num_hidden_layers=1, hidden_size=32).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (default / name).is_file():
            shutil.copy(default / name, folder / name)
    return folder


@pytest.mark.parametrize("make", [tiny_model, tiny_model_that_reads_like_smollm2])
def test_a_replay_over_http_measures_what_was_predicted(make, tmp_path, capsys):
    folder = make(tmp_path / "model")
    requests = workload()
    predicted = predictions(write_jsonl(tmp_path / "run.jsonl", requests), folder, capsys)
    with live_server(folder, num_pages=512) as server:
        replies = [server.chat(body.pop("messages"), **body, max_tokens=1) for body in requests]
    assert [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies] == predicted
    assert 0 in predicted and max(predicted) > 100
