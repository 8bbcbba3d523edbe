"""The page about the SDK runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sdk_wire
from sdk_wire import WireServer
from wire_sessions import Held

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"


@pytest.mark.filterwarnings("error")
def test_every_snippet_runs_in_order(
    wire: WireServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.held = Held()

    def refuse_negative_temperature(handler: sdk_wire.Handler) -> bool:
        fields = handler.body if isinstance(handler.body, dict) else {}
        if fields.get("temperature", 0) >= 0:
            return True
        error = {"message": "temperature: got -1, expected 0 or more", "param": "temperature", "code": "invalid_value"}
        handler.send_json(400, {"error": error})
        return False

    wire.faults.extend([refuse_negative_temperature] * 100)
    page = PAGE.read_text("utf-8").replace("http://127.0.0.1:8100", wire.url)
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) == page.count("```python") >= 10
    # Where the file is looked up is where its warnings and tracebacks point.
    space: dict[str, Any] = {"__name__": "sdk_page"}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"{PAGE.name}#{number}", "exec"), space)
    printed = capsys.readouterr().out
    for expected in (
        "tokens per turn",
        "last event: rollback",
        "3 pages until 70.5",
        "5 turns, 11 messages",
        "temperature is the matter",
        "now: 22:40\nfiles open: 3",
        "AC101 volatile-time",
        "messages[0].content",
    ):
        assert expected in printed
    assert any(chat["messages"][-1]["role"] == "tool" for chat in wire.chats if "messages" in chat)
