"""``response_format``: what the text of a reply must look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentcache.dialects.wording import shown
from agentcache.server.errors import bad_field

SCHEMA_FIELD = "response_format.json_schema.schema"


@dataclass(frozen=True)
class JsonFormat:
    """A JSON object; with a ``schema``, JSON of that schema; ``strict``: what of it cannot be enforced is refused."""

    schema: Mapping[str, Any] | Literal[True] | None = None
    strict: bool = False


def json_format(asked: Mapping[str, Any] | None) -> JsonFormat | None:
    """What ``response_format`` asks for; ``None`` is plain text.

    Raises:
        ApiError: 400.
    """
    kind = "text" if asked is None else asked.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return JsonFormat()
    if kind != "json_schema" or asked is None:
        expected = 'expected type "text", "json_object" or "json_schema"'
        raise bad_field("response_format", f"got {shown(asked)}, {expected}")
    described = asked.get("json_schema")
    if not isinstance(described, Mapping):
        raise bad_field("response_format.json_schema", f"got {shown(described)}, expected an object with a schema")
    schema = described.get("schema")
    if schema is None:
        schema = True  # any JSON value
    if schema is False:
        raise bad_field(SCHEMA_FIELD, "got false, which no reply fits; expected a JSON schema")
    if not isinstance(schema, Mapping) and schema is not True:
        raise bad_field(SCHEMA_FIELD, f"got {shown(schema)}, expected a JSON schema")
    return JsonFormat(schema, described.get("strict") is True)
