"""The OpenAPI description: bodies that routes read themselves (to bound them before they are parsed), answers, errors, keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from agentcache.server.answers import ANSWERS, OPEN, STREAMED

_REF = "#/components/schemas/"
_MODELS = "x-models"
"""Where an operation carries the schemas that it refers to, until the whole description is put together."""
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "as OpenAI's clients send their key"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "as Anthropic's do"},
}

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


_ERROR = {"content": {"application/json": {"schema": {"$ref": f"{_REF}Error"}}}}


def json_request(model: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` of a route whose body is a ``model``; its schema is put beside all others."""
    prefix = "".join(part.title() for part in model.__module__.split(".")[2:-1])  # of the package below the server's
    schema = model.model_json_schema(ref_template=f"{_REF}{prefix}{{model}}")
    models = {f"{prefix}{name}": definition for name, definition in schema.pop("$defs", {}).items()}
    name = f"{prefix}{model.__name__}"
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": _REF + name}}}},
        _MODELS: {name: schema, **models},
    }


def describe_bodies(app: FastAPI, *, keyed: bool = False) -> None:
    """Complete what FastAPI knows of the routes.

    Args:
        keyed: whether requests need a key.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate(), keyed)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(description: dict[str, Any], keyed: bool) -> dict[str, Any]:
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = ERROR_SCHEMA
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            schemas.update(operation.pop(_MODELS, {}))
            _describe_answers(method, path, operation)
            if path in OPEN:
                operation["security"] = []
    components["securitySchemes"] = _SECURITY
    description["security"] = [*([] if keyed else [{}]), *({name: []} for name in _SECURITY)]
    return description


def _describe_answers(method: str, path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI's own; bad values are 400 here
    content = responses["200"].setdefault("content", {})
    if (answer := ANSWERS.get((method, path))) is not None:
        content["application/json"] = {"schema": answer}
    if path in STREAMED:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    if path == "/health":
        unavailable = {"type": "object", "required": ["status", "reason"]}
        responses["503"] = {
            "description": "not yet, or no more",
            "content": {"application/json": {"schema": unavailable}},
        }
    responses.setdefault("4XX", {"description": "the request is refused"} | _ERROR)
    responses.setdefault("5XX", {"description": "the server fails, is busy or ends"} | _ERROR)
