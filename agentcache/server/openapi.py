"""The OpenAPI description of bodies that routes read themselves (to bound them before they are parsed)."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agentcache.server.bodies import (
    ChatBody,
    ClockBody,
    CompletionBody,
    DetokenizeBody,
    FaultBody,
    RenderBody,
    TokenizeBody,
)
from agentcache.server.session_bodies import CreateBody, ForkBody, PinBody, RollbackBody, SnapshotBody, WaitBody

_REF = "#/components/schemas/{model}"
_BODIES = (
    ChatBody, CompletionBody, RenderBody, TokenizeBody, DetokenizeBody, ClockBody, FaultBody,
    CreateBody, ForkBody, RollbackBody, WaitBody, PinBody, SnapshotBody,
)  # fmt: skip

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string", "description": "what was got and what was expected"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "the field of the request that is the matter"},
                "code": {"type": ["string", "null"], "description": "stable and machine-readable"},
            },
        }
    },
}


def json_request(model: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` of a route whose body is a ``model``."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    error = {"content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"4XX": {"description": "the request is refused"} | error},
    }


def describe_bodies(app: FastAPI) -> None:
    """Add the schemas that ``json_request`` refers to."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            description = generate()
            _, definitions = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_REF)
            schemas = description.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(definitions.get("$defs", {}), Error=ERROR_SCHEMA)
            app.openapi_schema = description
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
