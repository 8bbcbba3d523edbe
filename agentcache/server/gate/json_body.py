"""Reading a JSON body: bounded in bytes and depth, and strict where Python's parser is lenient."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request

from agentcache.server.errors import ApiError, bad_field

MAX_DEPTH = 64
MAX_PARTS = 500_000
"""Lists, objects and texts of a body, keys among them: each takes fifty times the memory that its bytes do."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_body(request: Request, limit: int) -> bytes:
    """The raw body, refused as soon as it is known to be larger than ``limit`` bytes.

    Raises:
        ApiError: 415 for another content type than JSON and for a compressed body, 413 for one that is too large.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ApiError(
            415, f"content-type: got {kind}, expected application/json", param="content-type", code="wrong_content_type"
        )
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise ApiError(
            415,
            f"content-encoding: got {coding}, expected a body that is not compressed",
            param="content-encoding",
            code="wrong_content_encoding",
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
        ApiError: 400 for anything but one JSON object, for nesting beyond ``MAX_DEPTH``, for more than ``MAX_PARTS``, for
            NaN, Infinity and numbers that overflow; the field is named.

    Of a key that comes twice the last is taken.  Half a surrogate pair in text becomes U+FFFD, as it does in browsers: agents
    cut text between the halves, and a history that holds such a cut must stay servable.
    """
    _check_parts(raw)
    odd: list[str] = []

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            odd.append(text)
        return value

    try:
        # Decoded here: json itself would take UTF-16 as well, and surrogates that are not even escaped.
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=number, parse_float=number)
    except RecursionError:
        raise _not_json(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        why = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        raise _not_json(f"{why} at character {error.pos:,}") from None
    except ValueError:  # bytes that are no UTF-8, or a number of thousands of digits
        raise _not_json("it is not UTF-8 text, or holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise _not_json("it must be one JSON object")
    # A body without enough brackets cannot be too deep; a long list of token ids is not walked for nothing.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise _not_json(f"it is nested deeper than {MAX_DEPTH} levels")
    if odd:
        path, number_found = next(_infinite("", value), ("body", odd[0]))  # a later twin of a key may hide it
        field = path.partition(".")[0].partition("[")[0]
        message = f"{path}: got {number_found}, expected a finite number"
        raise ApiError(400, message, param=field, code="invalid_value")
    if _SURROGATE_ESCAPE.search(raw):
        # Two salts must never become one.
        if _LONE_SURROGATE.search(str(value.get("cache_salt", ""))):
            raise bad_field("cache_salt", "got text with half a surrogate pair, expected valid Unicode")
        value = {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _check_parts(raw: bytes) -> None:
    if len(raw) <= MAX_PARTS or _parts(raw, raw.count(b'"')) <= MAX_PARTS:
        return
    # Code in a text is full of brackets and quotes: texts are taken out.  Between them, backslashes are no JSON.
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    parts = _parts(b"", quotes)
    if parts <= MAX_PARTS:
        parts = _parts(b"".join(bare.split(b'"')[::2]), quotes)
    if parts > MAX_PARTS:
        raise _not_json(f"it holds more than {MAX_PARTS:,} lists, objects and texts")


def _parts(outside: bytes, quotes: int) -> int:
    return outside.count(b"[") + outside.count(b"{") + quotes // 2


def _infinite(path: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _infinite(f"{path}.{key}" if path else key, item)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _infinite(f"{path}[{i}]", item)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


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
