"""How a refusal reads: the place, what was got, what was expected."""

from __future__ import annotations

import json
from typing import Any

from agentcache.errors import RequestError


def refuse(place: str, why: str, *, code: str | None = None) -> RequestError:
    """The error that names ``place``, a field of the body as its client wrote it."""
    return RequestError(f"{place}: {why}", place, code or "invalid_value")


def shown(value: Any, limit: int = 60) -> str:
    """``value`` as JSON would print it, cut to a length that suits a sentence."""
    if isinstance(value, str):
        text = json.dumps(value[: limit + 1], ensure_ascii=False)
        cut = len(value) > limit
    elif isinstance(value, (list, dict)) and len(value) > 8:
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,} entries"
    elif isinstance(value, list):
        text, cut = f"[{', '.join(shown(item, 20) for item in value)}]", False
    elif isinstance(value, dict):
        text, cut = f"{{{', '.join(f'{shown(k, 20)}: {shown(v, 20)}' for k, v in value.items())}}}", False
    else:
        text, cut = json.dumps(value), False
    return text if not cut and len(text) <= 2 * limit else text[:limit] + "…"


def got(value: Any) -> str:
    """``value`` as something that was found at a place, or that nothing was."""
    return "nothing" if value is None else shown(value)
