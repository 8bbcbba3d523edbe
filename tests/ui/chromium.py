"""A headless Chromium over its DevTools protocol: what the page shows, what it logs, and what its policy refuses."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "no Chromium was found: these tests drive the page in a real browser. "
    "On Debian and Ubuntu: apt-get install chromium; on macOS: brew install --cask chromium"
)


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab.  ``log`` gathers whatever a person would see in red: errors of scripts, of loading, and of the policy."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self.log: list[str] = []
        self._socket = socket
        self._session = session
        self._number = 0
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params, "sessionId": self._session}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=30))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.log.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.log.append(f"console: {[arg.get('value') for arg in params['args']]}")
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.log.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
        elif event.get("method") == "Audits.issueAdded":
            self.log.append(f"issue: {params['issue']['code']} {params['issue']['details']}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && document.querySelector('main') !== null")

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float = 15) -> None:
        """Until ``expression`` is true."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(f"!!({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}\n{self.text('body')}\n{self.log}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """With the pointer, where a person would."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        place = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str, code: int = 0) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 700,
        )

    def media(self, **features: str) -> None:
        """Such as ``prefers_color_scheme="light"``."""
        chosen = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=chosen)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """A fresh profile and one tab in it."""
    program = find_chromium()
    assert program is not None, MISSING
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        process = subprocess.Popen([program, *options], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"ws://\S+", line) for line in process.stderr)), None)
            assert found is not None, "Chromium ended before it could be talked to"
            with connect(found[0], max_size=None, ping_interval=None) as socket:
                yield _open_tab(socket)
        finally:
            process.terminate()
            process.wait(15)


def _open_tab(socket: ClientConnection) -> Page:
    def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
        socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(socket.recv(timeout=30))).get("id") != number:
            pass
        return answer["result"]

    target = ask(1_000_001, "Target.createTarget", url="about:blank")["targetId"]
    session = ask(1_000_002, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    return Page(socket, session)
