"""Records that cannot be read, and the like of them that can."""

from __future__ import annotations

import json

from lint_twins import Twin

GOOD = {"messages": [{"role": "user", "content": "Which page of the manual speaks of pages?"}]}
LINE = json.dumps(GOOD)
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}


def lines(*parts: str) -> dict[str, str]:
    return {"run.jsonl": "\n".join(parts) + "\n"}


def asked(*content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(content)}]}


def called(*blocks: object) -> dict[str, object]:
    reply = {"role": "assistant", "content": list(blocks)}
    return {"max_tokens": 9, "messages": [*GOOD["messages"], reply, {"role": "user", "content": [RESULT]}]}


TWINS = [
    Twin("AC903", "cut line", failing=lines(LINE, LINE[:-9], LINE), clean=lines(LINE, LINE, "", "  ", LINE)),
    Twin("AC903", "a table", failing=lines("name,age", "Ada,36", "Alan,41"), clean=lines(LINE)),
    Twin("AC903", "settings", failing=lines("[tool.agentcache.lint]", "page-size = 16"), clean=lines(LINE)),
    Twin("AC903", "no request", failing=[{"event": "start"}], clean=[GOOD]),
    Twin("AC903", "unknown role", failing=[{"messages": [{"role": "wizard", "content": "Hi"}]}], clean=[GOOD]),
    Twin("AC903", "content of a number", failing=[asked(5)], clean=[asked("What is this?", PICTURE)]),
    Twin(
        "AC903",
        "result of no call",
        failing=[called({"type": "text", "text": "I read."})],
        clean=[called({"type": "text", "text": "I read."}, USE)],
    ),
    Twin(
        "AC903",
        "response that goes on from nothing",
        failing=[{"input": "And then?", "previous_response_id": "resp_2"}],
        clean=[
            {
                "body": {"input": "What is this?"},
                "response": {
                    "id": "resp_1",
                    "output": [{"type": "message", "role": "assistant", "content": "A page."}],
                    "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}},
                },
            },
            {"body": {"input": "And then?", "previous_response_id": "resp_1"}},
        ],
    ),
    Twin(
        "AC903", "empty prompt", failing=[{"prompt": ""}], clean=[{"prompt": "Once upon a time"}, {"prompt": [1, 2, 3]}]
    ),
]
