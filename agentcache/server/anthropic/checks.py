"""A refusal in Anthropic's names."""

from __future__ import annotations

from agentcache.server.errors import ApiError, bad_field


def refuse(place: str, why: str, *, code: str | None = None) -> ApiError:
    """A 400 that names ``place``, in Anthropic's names."""
    return bad_field(place, why, code=code)
