"""Plain typed functions as OpenAI tool schemas.

The schema is a function of the signature and the docstring alone, with keys in a fixed order, so that it renders to
the same tokens in every process.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

Tool = Union[Callable[..., Any], Mapping[str, Any]]  # noqa: UP007  evaluated at run time on Python 3.10
"""A function, or a schema that is sent exactly as it is."""

_SECTION = re.compile(r"(?m)^\s*(?:Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$")
"""Where a docstring stops saying what the function does."""
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
    name = _name(function)
    parameters = _parameters_schema(name, function)
    described = {"name": name, "description": _first_paragraph(function), "parameters": parameters}
    return {"type": "function", "function": {key: value for key, value in described.items() if value != ""}}


def listed(tools: Iterable[Tool]) -> list[Tool]:
    """
    Raises:
        TypeError: one tool where a list of them belongs.
    """
    if callable(tools) or isinstance(tools, Mapping | str):
        raise TypeError(f"tools: got {tools!r}, expected a list of functions or schemas")
    return list(tools)


def tool_schemas(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Schemas of functions and schemas, in the order given.

    Raises:
        TypeError: neither a function nor a schema.
        ValueError: two tools of one name.
    """
    schemas: list[dict[str, Any]] = []
    names: set[str] = set()
    for tool in listed(tools):
        if isinstance(tool, Mapping):
            schema = dict(tool)
        elif callable(tool):
            schema = tool_schema(tool)
        else:
            raise TypeError(f"tools: got {tool!r}, expected a function or an OpenAI tool schema")
        name = schema_name(schema)
        if name in names:
            raise ValueError(f"tools: two tools are called {name!r}")
        names.add(name)
        schemas.append(schema)
    return schemas


class BadArguments(ValueError):  # noqa: N818  it is told to a model, which made them
    """The arguments of a call do not fit the function's parameters; the message says which and why."""


def bound_arguments(function: Callable[..., Any], arguments: str) -> dict[str, Any]:
    """Keyword arguments for ``function`` out of the JSON text of a call, checked and converted by the parameters' types.

    Raises:
        BadArguments: not JSON, or not what the parameters take.
    """
    name = _name(function)
    model = _parameters_model(name, function)
    try:
        given = json.loads(arguments or "{}")
    except ValueError as error:
        raise BadArguments(f"{name}: the arguments are not JSON: {error}") from None
    aliases = {str(field.alias): key for key, field in model.model_fields.items()}
    if not isinstance(given, dict):
        raise BadArguments(f"{name}: the arguments must be a JSON object, got {arguments[:120]}")
    if unknown := [key for key in given if key not in aliases]:
        raise BadArguments(f"{name}: got unknown argument {unknown[0]!r}, expected {', '.join(aliases) or 'none'}")
    try:
        # From text again: what JSON cannot tell apart (a tuple, a date, bytes) is accepted as a schema says.
        checked = model.model_validate_json(json.dumps(given))
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise BadArguments(f"{name}: {'; '.join(problems)}") from None
    return {alias: getattr(checked, key) for alias, key in aliases.items() if alias in given}


@dataclass(frozen=True)
class ToolSet:
    """The tools of a session: what the model is told, and what runs when it calls.

    Attributes:
        schemas: in the order given.
        functions: by name; a tool that was given as a schema has none.
    """

    schemas: tuple[dict[str, Any], ...] = ()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> ToolSet:
        """
        Raises:
            TypeError, ValueError: see ``tool_schemas``.
        """
        given = listed(tools)
        functions = {_name(tool): tool for tool in given if callable(tool)}
        return cls(tuple(tool_schemas(given)), functions)


def refuse_async(functions: Mapping[str, Any]) -> None:
    """What a session without ``await`` cannot call.

    Raises:
        TypeError: one of ``functions`` (or callbacks, by name; ``None`` is none) is async.
    """
    for name, function in functions.items():
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            raise TypeError(
                f"{name}: got an async function, expected a plain one: sessions of AsyncClient take async ones"
            )


def schema_name(schema: Mapping[str, Any]) -> str:
    """What the model calls a tool."""
    return str(schema.get("function", {}).get("name", schema))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _parameters_schema(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        schema = _parameters_model(name, function).model_json_schema(by_alias=True)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"{name}: a parameter's type has no JSON schema: {str(error).splitlines()[0]}") from error
    schema = _without_titles(schema)
    # A call with other arguments is refused, and a grammar made from a schema that allows them would let a model write them.
    schema["additionalProperties"] = False
    ordered = {"type": "object", "properties": schema.pop("properties", {})}
    return ordered | {key: schema[key] for key in ("required", "additionalProperties", "$defs") if key in schema}


def _parameters_model(name: str, function: Callable[..., Any]) -> type[BaseModel]:
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
        return create_model(name, __config__=ConfigDict(arbitrary_types_allowed=False), **fields)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"{name}: a parameter's type has no JSON schema: {str(error).splitlines()[0]}") from error


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
    first = text.strip().split("\n\n")[0]
    return " ".join(_SECTION.split(first)[0].split())
