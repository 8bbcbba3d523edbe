"""What tests of findings share: tenants, each with a namespace of its own, and the texts that they send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from live import LiveServer

KEYS = tuple(f"tenant-{number}" for number in range(300))
INTRO = "You are a helpful agent."
RULES = (
    " Read the file, run the tests, and say what is wrong with the parser. The cache keeps pages of keys and values and the agent"
    " sends the same long beginning again and again."
)
SYSTEM = INTRO + RULES


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def tool(name: str, description: str = "reads a file from the disk", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {"path": {"type": "string"}}, "required": []}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


@dataclass(frozen=True)
class Tenant:
    """One API key's requests."""

    server: LiveServer
    key: str

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.server.http.post(path, json=body, headers={"authorization": f"Bearer {self.key}"})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def chat(self, *messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {"messages": list(messages), "temperature": 0, "max_tokens": 2, **fields}
        return self.post("/v1/chat/completions", body)

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 2, **fields})

    def session(self, **body: Any) -> str:
        return str(self.post("/v1/sessions", body)["id"])

    def say(self, session: str, text: str, **fields: Any) -> dict[str, Any]:
        return self.chat(user(text), session=session, **fields)


def findings(reply: dict[str, Any]) -> list[dict[str, Any]]:
    return reply["agentcache"]["findings"]


def codes(reply: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in findings(reply)]


def waste(reply: dict[str, Any]) -> list[str]:
    """Codes of all but where shared parts end: of those, a short prompt has one nearly always."""
    return [code for code in codes(reply) if not code.startswith("AC50")]
