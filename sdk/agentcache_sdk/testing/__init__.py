"""For tests of agents: an engine without a server, a model or a socket, whose prefix cache is real.

>>> from agentcache_sdk.testing import FakeEngine, call
>>> def read_file(path: str) -> str:
...     '''Read a file.'''
...     return "x = 1 / 0"
>>> engine = FakeEngine([call("read_file", path="a.py"), "The bug is in line 1."])
>>> with engine.client() as client, client.session(system="You fix bugs.", tools=[read_file]) as session:
...     turn = session.send("Why does a.py crash?")
...     for made in turn.tool_calls:
...         session.tool_result(made.id, read_file(**made.args))
...     print(session.send().text)
The bug is in line 1.
>>> engine.assert_no_misses()
"""

from agentcache_sdk.testing._state import HttpCall
from agentcache_sdk.testing.engine import URL, FakeEngine
from agentcache_sdk.testing.replies import (
    Fault,
    Reply,
    Script,
    ScriptedCall,
    call,
    delay,
    error,
    hang_up,
    lose_answer,
    refuse_connection,
    reply,
    silence,
)
from agentcache_sdk.testing.requests import PrefixBreak, Request
from agentcache_sdk.testing.script import ScriptExhausted
from agentcache_sdk.testing.transport import FakeTransport

__all__ = [
    "URL",
    "FakeEngine",
    "FakeTransport",
    "Fault",
    "HttpCall",
    "PrefixBreak",
    "Reply",
    "Request",
    "Script",
    "ScriptExhausted",
    "ScriptedCall",
    "call",
    "delay",
    "error",
    "hang_up",
    "lose_answer",
    "refuse_connection",
    "reply",
    "silence",
]
