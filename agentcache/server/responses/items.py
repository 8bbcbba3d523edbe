"""Input items, refused as HTTP has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcache.dialects.foreign import RefuseForeign
from agentcache.dialects.responses import items as dialect
from agentcache.dialects.responses.items import Find, ItemNotFoundError, Turn
from agentcache.server.errors import ApiError, api_refusals


def read_input(given: str | Sequence[Any] | None, find: Find) -> Turn:
    """
    Raises:
        ApiError: 400 or 404, naming the item.
    """
    with api_refusals():
        try:
            return dialect.read_input(given, find, RefuseForeign())
        except ItemNotFoundError as error:
            raise ApiError(404, str(error), param=error.param, code=error.code) from error
