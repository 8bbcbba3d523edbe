"""The static part against real servers: padded sessions, prewarming, and what a request would lose."""

from __future__ import annotations

import asyncio
import doctest
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from live import LiveServer, drain, live_server
from saying import Saying, saying_server
from static_kitchen import KEEPING, TOOL
from tiny_folder import write_tiny_folder

from agentcache_sdk import AgentCacheError, AsyncClient, Client, NotFound

SYSTEM = (
    "You are a careful agent. Read the file, run the tests, and say what is wrong with the parser. " * 3
    + "Be exact, and answer with a patch."
)
IDS = {"temperature": 0, "return_token_ids": True, "max_tokens": 4}
USERS = ("Fix the bug.", "7 tests fail.", "zebra")
Messages = Sequence[Mapping[str, Any]]
# What is measured here is warned about: that is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::agentcache_sdk.CacheWarning")


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    """SmolLM2's own tokenizer and template, pages of 16."""
    with saying_server(tmp_path_factory.mktemp("saying")) as saying:
        saying.says("Yes.")
        yield saying
        drain(saying.server)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A tiny random model whose template writes the tools behind the system text, pages of 48."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    write_tiny_folder(folder)
    (folder / "chat_template.jinja").write_text(KEEPING["tools behind the system text"], "utf-8")
    with live_server(folder, page_size=48, num_pages=96, home=folder.parent) as server:
        yield server
        drain(server)


@pytest.fixture(params=["smollm2's tokenizer", "tiny"])
def server(request: pytest.FixtureRequest) -> LiveServer:
    if request.param == "tiny":
        return request.getfixturevalue("tiny")
    return request.getfixturevalue("saying").server


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(server.url, timeout=30) as client:
        client.flush_cache()
        yield client


def ids_of(turn: Any) -> list[int]:
    ids: list[int] = turn.raw["prompt_token_ids"]
    return ids


def common(*prompts: Sequence[int]) -> int:
    return next(
        (i for i, tokens in enumerate(zip(*prompts, strict=False)) if len(set(tokens)) > 1), min(map(len, prompts))
    )


def static(client: Client, head: Messages, tools: Messages = ()) -> int:
    """Of chat requests as they are really served."""
    turns = [client.chat([*head, {"role": "user", "content": text}], tools=tools or None, **IDS) for text in USERS]
    return common(*map(ids_of, turns))


@pytest.mark.filterwarnings("error")
def test_conversations_of_padded_sessions_share_whole_pages(client: Client) -> None:
    page = client.models()[0].page_size or 0
    for tools in ([], [TOOL]):
        turns, prompts = [], []
        for text in USERS:
            with client.session(system=SYSTEM, tools=tools, pad="system") as session:
                padding = session.padding
                turns.append(session.send(text, **IDS))
                turns.append(session.send("Go on.", **IDS))
                report = str(session.report())
            prompts += [ids_of(turn) for turn in turns[-2:]]
            assert padding is not None and padding.page_size == page
            assert str(padding) in " ".join(report.split())
        assert padding.reason is None and padding.tokens > 0
        assert common(*prompts) == padding.static_after == padding.static_before + padding.tokens
        assert padding.static_after % page == 0
        assert padding.static_before == static(client, [{"role": "system", "content": SYSTEM}], tools)
        assert [turn.usage.cached_tokens for turn in turns[2::2]] == [padding.static_after] * (len(USERS) - 1)
        assert all(turn.cache.partial_tokens == 0 for turn in turns[2::2])


def test_padding_is_the_same_in_every_process_and_for_the_async_client(server: LiveServer, client: Client) -> None:
    async def async_padding() -> Any:
        async with AsyncClient(server.url, timeout=30) as twin, twin.session(SYSTEM, pad="system") as session:
            return session.padding

    with client.session(SYSTEM, pad="system") as session, Client(server.url, timeout=30) as other:
        with other.session(SYSTEM, pad="system") as again:
            assert again.padding == session.padding == asyncio.run(async_padding())
        with other.session(pad="system") as without:
            assert "no system text" in str(without.padding)


def test_what_was_prewarmed_is_cached_to_its_very_end(client: Client) -> None:
    head = [{"role": "system", "content": SYSTEM}]
    for tools in ([], [TOOL]):
        client.flush_cache()
        warmed = client.prewarm(SYSTEM, tools)
        assert (warmed.cached_tokens, warmed.computed_tokens) == (0, warmed.tokens)
        assert (warmed.pages, warmed.tail_tokens) == divmod(warmed.tokens, warmed.page_size or 0)
        turn = client.chat([*head, {"role": "user", "content": "Fix the bug."}], tools=tools or None, **IDS)
        assert turn.usage.cached_tokens == warmed.tokens
        assert warmed.tokens == static(client, head, tools)
        client.flush_cache()
        client.prewarm(SYSTEM, tools)
        with client.session(SYSTEM, tools) as session:
            assert session.send("zebra", **IDS).usage.cached_tokens == warmed.tokens


def test_prewarming_twice_or_at_once_computes_once(server: LiveServer, client: Client) -> None:
    first, again = client.prewarm(SYSTEM, [TOOL]), client.prewarm(SYSTEM, [TOOL])
    assert (again.cached_tokens, again.computed_tokens) == (first.tokens - 1, 1)
    client.flush_cache()
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(client.prewarm(SYSTEM, [TOOL]).computed_tokens))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert sum(results) <= first.tokens + 5, "one computes, the others redo a token each"

    async def at_once() -> list[int]:
        async with AsyncClient(server.url, timeout=30) as twin:
            warmed = await asyncio.gather(*(twin.prewarm(SYSTEM, [TOOL]) for _ in range(4)))
            return [each.computed_tokens for each in warmed]

    assert asyncio.run(at_once()) == [1] * 4


def test_a_padded_beginning_can_be_prewarmed_for_padded_sessions(client: Client) -> None:
    warmed = client.prewarm(SYSTEM, [TOOL], pad="system")
    assert warmed.padding is not None and warmed.tail_tokens == 0 and warmed.tokens == warmed.padding.static_after
    with client.session(SYSTEM, [TOOL], pad="system") as session:
        assert session.send("Fix the bug.", **IDS).usage.cached_tokens == warmed.tokens


def test_a_conversation_to_begin_with_is_prewarmed_too(client: Client) -> None:
    shown = [{"role": "user", "content": "Is it green?"}, {"role": "assistant", "content": "It is."}]
    warmed = client.prewarm(SYSTEM, messages=shown)
    asked = [{"role": "system", "content": SYSTEM}, *shown, {"role": "user", "content": "zebra"}]
    assert client.chat(asked, **IDS).usage.cached_tokens == warmed.tokens
    whole = client.prewarm(SYSTEM, messages=[*shown, {"role": "user", "content": "And now?"}])
    again = client.chat([*asked[:-1], {"role": "user", "content": "And now?"}], **IDS)
    assert again.usage.prompt_tokens == whole.tokens
    assert again.usage.cached_tokens == whole.tokens - 1, "the last token of a full hit is redone"


def test_lint_counts_as_the_server_does_and_leaves_nothing_there(client: Client) -> None:
    dated = "It is 2026-03-01 12:30:45.\n" + SYSTEM
    messages = [{"role": "system", "content": dated}, {"role": "user", "content": "Fix the bug."}]
    before = client.cache()
    result = client.lint(messages, [TOOL])
    assert client.cache() == before, "nothing is computed"
    assert not result and not result.clean
    turn = client.chat(messages, tools=[TOOL], **IDS)
    assert turn.cache.miss is not None and turn.cache.miss.code == "cold"
    assert result.prompt_tokens == turn.usage.prompt_tokens
    assert result.page_size == turn.cache.page_size
    assert result.static_tokens == static(client, messages[:1], [TOOL])
    assert result.tail_tokens == result.static_tokens % (result.page_size or 0)
    (time,) = [finding for finding in result.findings if finding.code == "AC101"]
    later = [{"role": "system", "content": dated.replace("2026-03", "7026-03")}, messages[1]]
    token = common(ids_of(turn), ids_of(client.chat(later, tools=[TOOL], **IDS)))
    assert (time.location.token, time.tokens_lost_kind) == (token, "exact")
    assert time.tokens_lost == turn.usage.prompt_tokens - token
    shown = str(result)
    for word in ("AC101", "messages[0].content", f"{time.tokens_lost:,}", "volatile"):
        assert word in shown


def test_lint_of_a_clean_request_says_where_its_static_part_ends(client: Client) -> None:
    asked = [{"role": "user", "content": "Fix the bug."}]
    with client.session(SYSTEM, [TOOL], pad="system") as session:
        padded = [*session.messages, *asked]
    aligned = client.lint(padded, [TOOL])
    assert aligned.findings == () and aligned.clean and aligned.tail_tokens == 0
    assert "nothing found" in str(aligned)
    plain = client.lint([{"role": "system", "content": SYSTEM}, *asked], [TOOL])
    assert plain.clean and [(f.code, f.severity) for f in plain.findings] == [("AC501", "info")]
    assert plain.findings[0].tokens_lost == plain.tail_tokens > 0
    short = client.lint([{"role": "system", "content": "Be brief."}, *asked])
    assert short.clean and {f.code for f in short.findings} <= {"AC501", "AC502"}
    bare = client.lint(asked)
    assert bare.findings == () and bare.prompt_tokens > bare.static_tokens


def test_lint_knows_what_this_client_has_sent_and_is_not_remembered_itself(client: Client) -> None:
    def messages(name: str) -> list[dict[str, Any]]:
        system = f"{SYSTEM}\nYou work for {name}.\n{SYSTEM}"
        return [{"role": "system", "content": system}, {"role": "user", "content": "Fix the bug."}]

    assert client.lint(messages("Ada"), ignore="AC5").findings == ()
    assert client.lint(messages("Berta"), ignore="AC5").findings == ()
    earlier = client.chat(messages("Ada"), **IDS)
    assert client.lint(messages("Berta"), ignore="AC5").findings == (), "two texts may just be two texts"
    client.chat(messages("Cleo"), **IDS)
    result = client.lint(messages("Berta"), ignore="AC5")
    (finding,) = result.findings
    assert not result.clean
    token = common(ids_of(earlier), ids_of(client.chat(messages("Berta"), **IDS)))
    assert abs((finding.location.token or 0) - token) <= 1, "names may begin with the same token"
    assert finding.tokens_lost == result.prompt_tokens - (finding.location.token or 0)
    assert finding.code in str(result)


def test_a_place_in_parts_or_tools_is_counted_too(client: Client) -> None:
    parts = [{"type": "text", "text": SYSTEM}, {"type": "text", "text": "It is 12:30:45 now."}]
    asked = {"role": "user", "content": "Fix the bug."}
    (time,) = client.lint([{"role": "system", "content": parts}, asked], ignore="AC5").findings
    joined = SYSTEM + "It is 12:30:45 now."
    (again,) = client.lint([{"role": "system", "content": joined}, asked], ignore="AC5").findings
    assert time.location.token == again.location.token and time.tokens_lost == again.tokens_lost
    assert time.tokens_lost_kind == "exact"
    tools = [{**TOOL, "function": {**TOOL["function"], "name": name}} for name in ("read", "write", "search", "run")]
    messages = [{"role": "system", "content": SYSTEM}, asked]
    earlier = client.chat(messages, tools=tools, **IDS)
    swapped = [tools[1], tools[0], *tools[2:]]
    (order,) = client.lint(messages, swapped, ignore="AC5").findings
    token = common(ids_of(earlier), ids_of(client.chat(messages, tools=swapped, **IDS)))
    assert order.code == "AC202" and order.tokens_lost_kind == "upper_bound"
    assert abs((order.location.token or 0) - token) <= 1, "names may begin with the same token"


def test_replies_are_counted_and_prewarmed_as_they_were_generated(saying: Saying) -> None:
    pieces = [*saying.tokenizer.encode("Yes, the pars"), *saying.tokenizer.encode("er is wrong.")]
    text = "Yes, the parser is wrong."
    assert len(pieces) > len(saying.tokenizer.encode(text)), "generated in more tokens than it is read back in"
    saying.says(pieces)
    with Client(saying.server.url, timeout=30) as client:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Is it wrong?"}]
        assert client.chat(messages, temperature=0).text == text
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Then mend it."}]
        result = client.lint(messages)
        assert result.prompt_tokens > client.tokenize(messages=messages).count
        client.flush_cache()
        warmed = client.prewarm(messages=messages[:-1])
        turn = client.chat(messages, **IDS)
        assert result.prompt_tokens == turn.usage.prompt_tokens
        assert warmed.tokens == turn.usage.cached_tokens
    saying.says("Yes.")


def test_lint_takes_what_chat_takes(server: LiveServer, client: Client) -> None:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
    options = {"volatile": {"now": "12:30:45"}, "max_tokens": 3, "model": client.models()[0].id}
    result = client.lint(messages, **options)
    assert result.clean, "the time stands behind everything"
    assert result.prompt_tokens == client.chat(messages, **options).usage.prompt_tokens

    async def twin() -> Any:
        async with AsyncClient(server.url, timeout=30) as twin:
            return await twin.lint(messages, **options)

    assert asyncio.run(twin()) == result
    with pytest.raises(NotFound):
        client.lint(messages, model="nobody")
    with pytest.raises(ValueError, match="expected at least one"):
        client.lint([])
    with pytest.raises(ValueError, match="expected"):
        client.prewarm(SYSTEM, pad="tools")  # type: ignore[arg-type]
    with pytest.raises(AgentCacheError):
        client.prewarm(SYSTEM * 100)


class Elsewhere(httpx.BaseTransport):
    """A server that says how large its pages are and has no ``/tokenize``; with ``routes`` it has more."""

    def __init__(self, **routes: Any) -> None:
        self.routes = {"/v1/models": {"data": [{"id": "m", "page_size": 16}]}} | routes
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if request.url.path in self.routes:
            return httpx.Response(200, json=self.routes[request.url.path])
        return httpx.Response(404, json={"detail": "Not Found"})


def test_a_server_that_does_not_tokenise_is_told_of_and_nothing_is_padded() -> None:
    elsewhere = Elsewhere(
        **{"/v1/chat/completions": {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}}
    )
    with Client("http://elsewhere", transport=elsewhere) as client:
        with client.session(SYSTEM, pad="system") as session:
            session.send("Hi")
            assert session.padding is not None and "has no /tokenize" in str(session.padding)
            assert session.messages[0] == {"role": "system", "content": SYSTEM}
        for refused in (client.prewarm, client.lint):
            with pytest.raises(AgentCacheError, match="has no /tokenize"):
                refused([{"role": "user", "content": "Hi"}] if refused == client.lint else SYSTEM)
    elsewhere.routes.pop("/v1/models")
    with Client("http://elsewhere", transport=elsewhere) as client, client.session(SYSTEM, pad="system") as session:
        assert "does not say how large its pages are" in str(session.padding)


@pytest.mark.parametrize("method", [Client.prewarm, Client.lint], ids=["prewarm", "lint"])
def test_the_example_of_a_method_runs_as_printed(saying: Saying, method: Any) -> None:
    text = method.__doc__.replace("http://127.0.0.1:8100", saying.server.url)
    example = doctest.DocTestParser().get_doctest(text, {}, method.__name__, None, None)
    output: list[str] = []
    doctest.DocTestRunner().run(example, out=output.append)
    assert example.examples and not output, "".join(output)


PAGE = Path(__file__).parents[2] / "docs" / "sdk" / "alignment.md"


@pytest.mark.filterwarnings("error")
def test_the_page_about_the_static_part_runs_as_printed(saying: Saying, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8").replace("http://127.0.0.1:8100", saying.server.url)
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == page.count("```python") >= 6
    space: dict[str, Any] = {"__name__": "alignment_page"}
    try:
        for number, snippet in enumerate(snippets):
            exec(compile(snippet, f"{PAGE.name}#{number}", "exec"), space)
    finally:
        space["client"].close()
    printed = capsys.readouterr().out
    for expected in ("AC101", "tokens per turn", "padding: nothing was done: there is no system text to pad", " -> "):
        assert expected in printed
