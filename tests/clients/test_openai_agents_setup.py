"""``agentcache_sdk.openai_agents`` from outside: keys, tracing, engines in this process, wrong arguments, the page about it."""

from __future__ import annotations

import asyncio
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agent_talks import ANSWER, ask, finds_the_reply_before_it, helper, in_the_runners_loop
from agents import ModelSettings, Runner, add_trace_processor, set_trace_processors
from saying import saying_server
from tiny_folder import write_tiny_folder

from agentcache import AsyncLocalClient, LocalClient
from agentcache_sdk import Client, openai_agents
from agentcache_sdk.openai_agents import CachedSession, model, run_config


@pytest.fixture(scope="module")
def saying(tmp_path_factory):
    with saying_server(tmp_path_factory.mktemp("saying")) as made:
        yield made


def test_nothing_is_traced_and_keys_travel(saying, tmp_path):
    class Spans:
        def __init__(self):
            self.seen = []

        def on_trace_start(self, trace):
            self.seen.append(trace)

        on_trace_end = on_span_start = on_span_end = on_trace_start

        def shutdown(self):
            return None

        force_flush = shutdown

    spans = Spans()
    add_trace_processor(spans)
    with saying_server(tmp_path, api_keys=("open sesame",)) as locked:
        locked.says(ANSWER)
        with Client(locked.server.url, api_key="open sesame") as client:
            config = run_config(client)
            for number, served in enumerate((model(client, "saying"), model(client, api="responses"))):
                agent = helper(f"keyed {number}", model=served)
                assert Runner.run_sync(agent, "Hello?", run_config=config).final_output == ANSWER
                in_the_runners_loop(served.close())
    set_trace_processors([])
    assert spans.seen == []


def test_wrong_arguments_are_named(saying):
    with Client(saying.server.url) as client:
        with pytest.raises(ValueError, match='got \'completions\', expected "chat" or "responses"'):
            model(client, api="completions")
        with pytest.raises(TypeError, match=r"got str, expected agentcache_sdk\.Client or AsyncClient"):
            CachedSession(saying.server.url)
        with pytest.raises(TypeError, match="give a client or a provider"):
            run_config()


def test_without_the_framework_the_import_says_what_to_install():
    code = "import sys; sys.modules['agents'] = None; import agentcache_sdk.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install '.[agents]'" in done.stderr


def test_every_snippet_of_the_page_runs_in_order(saying, tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "sdk" / "openai-agents.md").read_text("utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == page.count("```python") == 6
    monkeypatch.chdir(tmp_path)
    saying.says(ANSWER)
    space = {"__name__": "agents_page"}
    for number, snippet in enumerate(snippets):
        code = snippet.replace("http://127.0.0.1:8100", saying.server.url)
        exec(compile(code, f"openai-agents.md#{number}", "exec"), space)
    in_the_runners_loop(space["config"].model_provider.aclose())
    in_the_runners_loop(space["named"].model.close())
    printed = capsys.readouterr().out
    for expected in (ANSWER, "tokens per turn", "lost: 0", "[True, True] True", "0 True", "\nTrue\n"):
        assert expected in printed
    assert printed.endswith("True\n0 True\nTrue\n")


def test_the_example_of_the_package_runs(saying):
    saying.says(ANSWER)
    example = doctest.DocTestFinder(recurse=False).find(openai_agents)[0]
    for step in example.examples:
        step.source = step.source.replace("http://127.0.0.1:8100", saying.server.url)
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))


def test_an_engine_in_this_process_will_do(tmp_path):
    write_tiny_folder(tmp_path, vocab_size=1000)

    async def talk():
        async with AsyncLocalClient(str(tmp_path), num_pages=256) as client, CachedSession(client) as session:
            agent = helper("local", words=20, model_settings=ModelSettings(max_tokens=8, temperature=0))
            for question in ("Hello?", "And now?"):
                await ask(session, agent, question, streamed=question == "Hello?")
            return session.report().rows

    rows = asyncio.run(talk())
    assert len(rows) == 2 and finds_the_reply_before_it(rows)
    with LocalClient(str(tmp_path), num_pages=256) as client, pytest.raises(TypeError, match="expected an AsyncLocal"):
        CachedSession(client)
