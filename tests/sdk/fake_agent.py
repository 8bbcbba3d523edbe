"""What the tests of the fake engine say and call."""

from __future__ import annotations

from agentcache_sdk.testing import FakeEngine

SYSTEM = "You are a careful engineer. Read before you write, and run the tests before you say that you are done. " * 2
HELLO = [{"role": "user", "content": "Hello"}]


def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


def chat_texts(engine: FakeEngine, count: int) -> list[str]:
    with engine.client() as client:
        return [client.chat(HELLO).text for _ in range(count)]
