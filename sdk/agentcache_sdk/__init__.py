"""Python SDK of agentcache: clients, append-only sessions, typed cache reports, and warnings about lost cache.

>>> from agentcache_sdk import Client
>>> with Client("http://127.0.0.1:8100") as client, client.session(system="Answer in one word.") as session:
...     turn = session.send("What is the capital of France?", max_tokens=8)
...     again = session.send("And of Italy?", max_tokens=8)
>>> again.usage.cached_tokens > turn.usage.cached_tokens
True
"""

from agentcache_sdk._compaction import Compaction
from agentcache_sdk._core import Wait
from agentcache_sdk._tool_loop import RunResult, ToolRun
from agentcache_sdk.alignment import LintResult, Padding, Prewarmed
from agentcache_sdk.async_client import AsyncClient
from agentcache_sdk.async_session import AsyncSession
from agentcache_sdk.cache_warnings import (
    AlignmentWarning,
    CacheWarning,
    PrefixBreakWarning,
    TemplateWarning,
    VolatileWarning,
    suppress,
)
from agentcache_sdk.client import Client
from agentcache_sdk.errors import (
    AgentCacheError,
    APIError,
    BadRequest,
    Busy,
    ConnectionFailed,
    ContextOverflow,
    NotFound,
    RateLimited,
    ServerError,
    SessionDiverged,
    Timeout,
)
from agentcache_sdk.report import ReportRow, SessionReport
from agentcache_sdk.session import Session
from agentcache_sdk.streams import AsyncChatStream, ChatStream
from agentcache_sdk.tools import tool_schema
from agentcache_sdk.types import (
    Alignment,
    CachedNow,
    CacheReport,
    CacheState,
    Choice,
    Explanation,
    Finding,
    Fix,
    Health,
    Location,
    Miss,
    Model,
    Pin,
    SessionInfo,
    SessionTurn,
    SharePoint,
    Snapshot,
    Tiers,
    Tokens,
    ToolCall,
    Turn,
    Usage,
    Version,
)

__all__ = [
    "APIError",
    "AgentCacheError",
    "Alignment",
    "AlignmentWarning",
    "AsyncChatStream",
    "AsyncClient",
    "AsyncSession",
    "BadRequest",
    "Busy",
    "CacheReport",
    "CacheState",
    "CacheWarning",
    "CachedNow",
    "ChatStream",
    "Choice",
    "Client",
    "Compaction",
    "ConnectionFailed",
    "ContextOverflow",
    "Explanation",
    "Finding",
    "Fix",
    "Health",
    "LintResult",
    "Location",
    "Miss",
    "Model",
    "NotFound",
    "Padding",
    "Pin",
    "PrefixBreakWarning",
    "Prewarmed",
    "RateLimited",
    "ReportRow",
    "RunResult",
    "ServerError",
    "Session",
    "SessionDiverged",
    "SessionInfo",
    "SessionReport",
    "SessionTurn",
    "SharePoint",
    "Snapshot",
    "TemplateWarning",
    "Tiers",
    "Timeout",
    "Tokens",
    "ToolCall",
    "ToolRun",
    "Turn",
    "Usage",
    "Version",
    "VolatileWarning",
    "Wait",
    "suppress",
    "tool_schema",
]
