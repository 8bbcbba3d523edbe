"""Reading a JSON body: bounded in bytes and depth, and strict where Python's parser is lenient."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request

from agentcache.server.errors import ApiError

MAX_DEPTH = 64
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_body(request: Request, limit: int) -> bytes:
    """The raw body, refused as soon as it is known to be larger than ``limit`` bytes.

    Raises:
        ApiError: 415 for another content type than JSON, 413 for a body that is too large.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ApiError(
            415, f"content-type: got {kind}, expected application/json", param="content-type", code="wrong_content_type"
        )
    announced = request.headers.get("content-length", "0")
    # Digits only is what the HTTP layer lets through; anything else is measured while it arrives.
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    received = bytearray()
    async for part in request.stream():
        received += part
        if len(received) > limit:
            raise _too_large(limit)
    return bytes(received)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``.

    Raises:
        ApiError: 400 for anything but one JSON object, for nesting beyond ``MAX_DEPTH``, for NaN, Infinity and numbers
            that overflow, and for text that is not valid Unicode; the field is named.
    """
    odd: list[str] = []

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            odd.append(text)
        return value

    try:
        value = json.loads(raw, parse_constant=number, parse_float=number)
    except RecursionError:
        raise _not_json(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg[0].lower()}{error.msg[1:]} at character {error.pos:,}") from None
    except ValueError:  # not text in any encoding that JSON may have, or a number of thousands of digits
        raise _not_json("it is not UTF-8 text, or holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise _not_json("it must be one JSON object")
    # A body without enough brackets cannot be too deep; a long list of token ids is not walked for nothing.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _not_json(f"it is nested deeper than {MAX_DEPTH} levels")
    if odd or _SURROGATE_ESCAPE.search(raw):
        _refuse_flaws(value)
    return value


def _refuse_flaws(value: dict[str, Any]) -> None:
    for path, item in _leaves(value):
        field = path.partition(".")[0].partition("[")[0]
        if isinstance(item, float) and not math.isfinite(item):
            raise ApiError(400, f"{path}: got {item}, expected a finite number", param=field, code="invalid_value")
        if isinstance(item, str) and _LONE_SURROGATE.search(item):
            message = f"{path}: got text with half a surrogate pair (\\uD800 to \\uDFFF), expected valid Unicode"
            raise ApiError(400, message, param=field, code="invalid_value")


def _leaves(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Paths and values of all scalars and keys; the depth was checked before."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            for key, child in item.items():
                yield path or "body", key
                stack.append((f"{path}.{key}" if path else key, child))
        elif isinstance(item, list):
            stack.extend((f"{path}[{i}]", child) for i, child in enumerate(item) if type(child) is not int)
        else:
            yield path, item


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for group in children for child in group if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit:,} bytes (--max-body)", code="body_too_large")


def _not_json(why: str) -> ApiError:
    return ApiError(400, f"the body is not valid JSON: {why}", param="body", code="invalid_json")
