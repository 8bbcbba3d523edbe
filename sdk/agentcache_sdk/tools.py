"""Plain typed functions as OpenAI tool schemas.

The schema is a function of the signature and the docstring alone, with keys in a fixed order, so that it renders to
the same tokens in every process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

Tool = Union[Callable[..., Any], Mapping[str, Any]]  # noqa: UP007  evaluated at run time on Python 3.10
"""A function, or a schema that is sent exactly as it is."""

_DATA_KEYS = ("default", "enum", "const", "examples")
"""Keywords of JSON Schema whose value is data, not schema."""


def tool_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The OpenAI schema of a function: its name, the first paragraph of its docstring, its parameters.

    Parameters need types; ``Annotated[int, "what it is"]`` (or pydantic's ``Field``) adds a description.

    Raises:
        TypeError: a parameter has no type, or one that JSON cannot carry, or is ``*args``, ``**kwargs`` or
            positional-only.

    >>> from agentcache_sdk import tool_schema
    >>> def read_file(path: str, limit: int = 100) -> str:
    ...     '''Read the first lines of a file.'''
    ...     return "".join(open(path).readlines()[:limit])
    >>> tool_schema(read_file)["function"]["parameters"]["required"]
    ['path']
    """
    name = getattr(function, "__name__", type(function).__name__)
    parameters = _parameters_schema(name, function)
    described = {"name": name, "description": _first_paragraph(function), "parameters": parameters}
    return {"type": "function", "function": {key: value for key, value in described.items() if value != ""}}


def tool_schemas(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Schemas of functions and schemas, in the order given.

    Raises:
        TypeError: neither a function nor a schema.
        ValueError: two tools of one name.
    """
    schemas: list[dict[str, Any]] = []
    names: set[str] = set()
    for tool in tools:
        if isinstance(tool, Mapping):
            schema = dict(tool)
        elif callable(tool):
            schema = tool_schema(tool)
        else:
            raise TypeError(f"tools: got {tool!r}, expected a function or an OpenAI tool schema")
        name = str(schema.get("function", {}).get("name", schema))
        if name in names:
            raise ValueError(f"tools: two tools are called {name!r}")
        names.add(name)
        schemas.append(schema)
    return schemas


def _parameters_schema(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    # Fields are numbered and carry the parameter's name as alias: any parameter name is then a legal field,
    # including those that start with an underscore or shadow a method of pydantic's.
    fields: dict[str, Any] = {}
    hints = _type_hints(name, function)
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}({parameter}): a tool's parameters are passed by name")
        if parameter.name not in hints:
            raise TypeError(f"{name}({parameter.name}): the parameter has no type, so no schema can be made for it")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"p{index}"] = (_described(hints[parameter.name]), Field(default, alias=parameter.name))
    try:
        model = create_model(name, __config__=ConfigDict(arbitrary_types_allowed=False), **fields)
        schema = model.model_json_schema(by_alias=True)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"{name}: a parameter's type has no JSON schema: {str(error).splitlines()[0]}") from error
    schema = _without_titles(schema)
    ordered = {"type": "object", "properties": schema.pop("properties", {})}
    return ordered | {key: schema[key] for key in ("required", "$defs") if key in schema}


def _type_hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else function.__call__  # type: ignore[operator]
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: a type in its signature cannot be found: {error}") from error


def _described(hint: Any) -> Any:
    """``Annotated[T, "text"]`` as pydantic understands it."""
    if get_origin(hint) is not Annotated:
        return hint
    base, *extras = get_args(hint)
    for extra in extras:
        base = Annotated[base, Field(description=extra) if isinstance(extra, str) else extra]
    return base


def _without_titles(schema: Any) -> Any:
    """Drop the titles that pydantic derives from names: they repeat the name and cost prompt tokens."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            kept[key] = {name: _without_titles(child) for name, child in value.items()}
        elif key in _DATA_KEYS:
            kept[key] = value
        elif key != "title":
            kept[key] = _without_titles(value)
    return kept


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.strip().split("\n\n")[0].split())
