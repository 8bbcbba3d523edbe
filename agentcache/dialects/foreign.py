"""Parts of a request that are no text: pictures, documents, tools that a provider runs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from agentcache.errors import RequestError


class Foreign(Protocol):
    """What is done about them."""

    def text(self, part: Mapping[str, Any], refusal: RequestError) -> str:
        """What stands in the place of a part of a message, or ``refusal`` is raised."""
        ...  # pragma: no cover

    def tool(self, tool: Mapping[str, Any], refusal: RequestError) -> dict[str, Any]:
        """What the model is told of a tool (a function's name, description and parameters), or ``refusal`` is raised."""
        ...  # pragma: no cover


class RefuseForeign:
    """They are refused: a model that reads text only cannot be asked about them."""

    def text(self, part: Mapping[str, Any], refusal: RequestError) -> NoReturn:
        raise refusal

    def tool(self, tool: Mapping[str, Any], refusal: RequestError) -> NoReturn:
        raise refusal
