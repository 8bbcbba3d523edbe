"""openai-agents on an agentcache server: conversations whose every turn finds the one before it cached, and that say so.

Needs the ``openai-agents`` package (``pip install '.[agents]'`` in the folder of agentcache's source).

>>> import asyncio
>>> from agents import Agent, ModelSettings, Runner
>>> from agentcache_sdk import AsyncClient
>>> from agentcache_sdk.openai_agents import CachedSession
>>> async def talk() -> bool:
...     async with AsyncClient("http://127.0.0.1:8100") as client, CachedSession(client) as session:
...         agent = Agent(name="helper", instructions="Be brief.", model_settings=ModelSettings(max_tokens=8))
...         for question in ("What is a page?", "And a lease?"):
...             await Runner.run(agent, question, session=session, run_config=session.run_config())
...         first, second = session.report().rows
...         return second.cached >= first.sent
>>> asyncio.run(talk())
True
"""

try:
    import agents as _agents
except ImportError as error:
    raise ImportError(
        "agentcache_sdk.openai_agents needs the openai-agents package: pip install '.[agents]' in the folder of "
        "agentcache's source"
    ) from error
if not hasattr(_agents, "Runner"):
    raise ImportError(
        f"agentcache_sdk.openai_agents needs the openai-agents package, but `agents` is another one: {_agents.__file__}"
    )

from agentcache_sdk.openai_agents.config import CachedProvider, model, run_config
from agentcache_sdk.openai_agents.heads import share_tools
from agentcache_sdk.openai_agents.models import CachedChatModel, CachedResponsesModel
from agentcache_sdk.openai_agents.session import CachedSession

__all__ = [
    "CachedChatModel",
    "CachedProvider",
    "CachedResponsesModel",
    "CachedSession",
    "model",
    "run_config",
    "share_tools",
]
