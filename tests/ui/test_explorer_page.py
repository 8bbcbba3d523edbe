"""The page itself, in a browser, against a running server."""

from __future__ import annotations

import pytest
from chromium import Page, browser

pytestmark = pytest.mark.browser

SYSTEM = "You are a helpful agent. Read the file, run the tests, and say what is wrong with the parser. " * 2
BOXES = "document.querySelectorAll('#tree .box').length"
HOSTILE = (
    "<img src=x onerror=\"window.pwned='img'\"></script><script>window.pwned='script'</script>"
    "<svg onload=\"window.pwned='svg'\"> \u202edlrow olleh \x00 javascript:window.pwned='url' {{7*7}}"
)


@pytest.fixture(scope="module")
def tab():
    with browser() as page:
        page.size(1300, 1000)
        yield page


@pytest.fixture
def page(tab: Page):
    tab.call("Page.navigate", url="about:blank")
    tab.wait_for("location.href === 'about:blank'")
    tab.log.clear()
    yield tab
    assert tab.log == []


@pytest.fixture(scope="module")
def server(serve):
    with serve() as running:
        yield running


def ask(server, text: str, **fields):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return server.chat(messages, max_tokens=4, **fields)


def test_an_empty_cache_says_how_to_begin_and_then_shows_what_came(server, page):
    page.open(f"{server.url}/ui")
    page.wait_for("!document.querySelector('#start').hidden")
    assert f"curl {server.url}/v1/chat/completions" in page.text("#start")
    for number in range(3):
        ask(server, f"task {number}")
    page.wait_for(f"{BOXES} >= 4")
    page.wait_for("document.querySelectorAll('#requests .row').length === 3")
    assert not page.evaluate("document.querySelector('#tree-panel').hidden")
    assert "helpful agent" in page.text("#tree")
    assert page.text("#link") == "live"
    cache = server.pages()
    assert f"{cache['total'] - cache['free']} / {cache['total']}" in page.text("#tiles")


def test_a_picked_request_says_where_and_why_it_stopped_hitting(server, page):
    ask(server, "first way")
    report = ask(server, "second way")["agentcache"]
    page.open(f"{server.url}/ui")
    page.wait_for("document.querySelectorAll('#requests .row').length >= 2")
    page.click("#requests .row:nth-child(2)")
    assert (
        page.evaluate("document.querySelector('#requests .row:nth-child(2)').getAttribute('aria-selected')") == "true"
    )
    page.click("#requests .row:nth-child(1)")
    told = page.text("#request")
    assert f"{report['cached_tokens']} of {report['prompt_tokens']} prompt tokens were cached" in told
    assert f"token {report['miss']['at_token']}" in told and "in message 2" in told and "What to do" in told
    assert report["miss"]["code"] == "diverged" and report["miss"]["now"][:10] in told
    page.press("ArrowDown", 40)
    assert page.text("#request") != told


def test_the_tree_is_zoomed_with_pointer_and_keys(server, page):
    for number in range(3):
        ask(server, f"task {number}")
    page.open(f"{server.url}/ui")
    page.wait_for(f"{BOXES} >= 4")
    page.evaluate("document.querySelector('#tree .box').focus()")
    page.press("ArrowDown", 40)
    page.press("Enter", 13)
    page.wait_for("document.querySelectorAll('#tree .box.above').length === 1")
    assert "all" in page.text("#crumbs") and page.text("#node").startswith("Text")
    page.press("Escape", 27)
    page.press("Escape", 27)
    page.wait_for(
        "document.querySelectorAll('#tree .box.above').length === 0 && !document.querySelector('#crumbs').innerText"
    )
    page.click("#tree .box:nth-child(2)")
    page.wait_for("document.querySelectorAll('#tree .box.above').length >= 1")
    page.click("#crumbs button")
    page.wait_for("document.querySelectorAll('#tree .box.above').length === 0")


def test_hostile_text_is_shown_and_does_nothing(serve, page):
    with serve() as server:
        session = server.http.post("/v1/sessions", json={"metadata": {"name": HOSTILE}, "system": HOSTILE}).json()["id"]
        server.chat([{"role": "user", "content": HOSTILE}], session=session, max_tokens=2)
        server.chat([{"role": "user", "content": HOSTILE + " again"}], max_tokens=2, cache_salt=HOSTILE)
        server.chat([{"role": "user", "content": HOSTILE + " and again"}], max_tokens=2, cache_salt=HOSTILE)
        page.open(f"{server.url}/ui")
        page.wait_for(f"{BOXES} >= 2 && document.querySelector('#sessions details')")
        page.click("#requests .row")
        page.click("#sessions summary")
        assert page.evaluate("window.pwned === undefined")
        assert page.evaluate("document.querySelectorAll('main img, main script, main a, #tree svg').length") == 0
        shown = page.evaluate("document.body.textContent")
        assert "onerror=" in shown and "⟨U+202E⟩" in shown and "␀" in shown
        assert "\u202e" not in shown and "\x00" not in shown


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(serve, page):
    with serve(api_keys=("key-one",)) as server:
        ask(server, "something")
        page.open(f"{server.url}/ui")
        page.wait_for("!document.querySelector('#key-form').hidden")
        assert page.evaluate("document.querySelector('#main').hidden") and "helpful" not in page.text("body")
        for key in ("wrong", "key-one"):
            page.evaluate("document.querySelector('#key').focus()")
            page.type(key)
            page.click("#key-form button")
            page.wait_for(
                "document.querySelector('#key-error').innerText !== '' || !document.querySelector('#main').hidden"
            )
        page.wait_for(f"{BOXES} >= 1")
        assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
        assert page.call("Network.getCookies")["cookies"] == []
        page.click("#forget")
        page.wait_for("document.querySelector('#key-form')?.hidden === false && sessionStorage.length === 0")
        assert all("401" in line for line in page.log), page.log  # the browser notes every refusal
        page.log.clear()


def test_a_lost_connection_is_said_and_found_again(server, page):
    page.open(f"{server.url}/ui")
    page.wait_for("document.querySelector('#link').innerText === 'live'")
    page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.wait_for("document.querySelector('#link').innerText === 'no connection'")
    assert "Trying again" in page.text("#notice") and not page.evaluate("document.querySelector('#main').hidden")
    page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.wait_for("document.querySelector('#link').innerText === 'live' && document.querySelector('#notice').hidden")
    assert all("ERR_INTERNET_DISCONNECTED" in line for line in page.log), page.log
    page.log.clear()


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_can_be_read(server, page, width, theme):
    """Nothing sticks out sideways, and text stands out from what is behind it (4.5 to 1, as WCAG asks)."""
    ask(server, "task 1")
    page.media(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    page.size(width, 900)
    try:
        page.open(f"{server.url}/ui")
        page.wait_for(f"{BOXES} >= 1")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        pairs = page.evaluate(
            "['--text --card', '--dim --card', '--text --ground', '--h0t --h0', '--h3t --h3', '--h4t --h4', '--h6t --h6']"
            ".map((pair) => pair.split(' ').map((name) => getComputedStyle(document.documentElement)"
            ".getPropertyValue(name).trim()))"
        )
        assert min(contrast(*pair) for pair in pairs) >= 4.5, pairs
        assert page.evaluate("document.getAnimations().length") == 0
    finally:
        page.size(1300, 1000)
        page.media()


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
