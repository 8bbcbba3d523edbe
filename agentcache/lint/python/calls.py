"""Reads calls as texts: methods of strings, templates, functions of the module, and functions that hand a text on."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentcache.lint.python.counters import length
from agentcache.lint.python.elsewhere import elsewhere
from agentcache.lint.python.module import last_word
from agentcache.lint.python.names import Here, arguments_of
from agentcache.lint.python.templates import Field, Parts, brace_parts, dollar_parts, format_parts, percent_parts
from agentcache.lint.python.texts import (
    EMPTY,
    Slot,
    Value,
    constant,
    has_source,
    joined,
    without_order,
    words,
)

if TYPE_CHECKING:
    from agentcache.lint.python.reading import Reader

_HANDS_ON = {
    *(
        "str",
        "repr",
        "ascii",
        "format",
        "int",
        "float",
        "round",
        "list",
        "tuple",
        "dict",
        "bytes",
        "reversed",
        "iter",
        "next",
    ),
    *(
        "textwrap.dedent",
        "textwrap.indent",
        "textwrap.fill",
        "inspect.cleandoc",
        "html.escape",
        "shlex.quote",
        "Markup",
    ),
    *("os.path.abspath", "os.path.realpath", "os.path.basename", "os.path.dirname", "os.path.normpath"),
    *("datetime.datetime.fromtimestamp", "datetime.datetime.utcfromtimestamp", "time.localtime", "time.gmtime"),
    *("pathlib.Path", "pathlib.PurePath", "base64.b64encode", "copy.copy", "copy.deepcopy", "string.Template"),
    *("jinja2.Template", "pydantic.SecretStr"),
}
"""Functions whose first argument is what comes out, more or less."""
_ALL_ARGUMENTS = {"os.path.join", "print", "datetime.datetime.combine"}
_OF_TIME = {"time.strftime": 1, "time.asctime": 0, "time.ctime": 0}
_METHODS = {
    *("strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize", "casefold", "removeprefix", "removesuffix"),
    *(
        "encode",
        "decode",
        "expandtabs",
        "ljust",
        "rjust",
        "center",
        "zfill",
        "getvalue",
        "translate",
        "splitlines",
        "split",
    ),
    *("isoformat", "timestamp", "astimezone", "timetuple", "ctime", "date", "time", "strftime", "replace", "weekday"),
    *("isocalendar", "toordinal", "isoweekday", "total_seconds", "format_datetime", "to_iso8601_string", "humanize"),
    *("to_datetime_string", "to_date_string", "to_time_string", "resolve", "absolute", "as_posix", "joinpath", "read"),
    *("partition", "rpartition", "rsplit", "pop", "copy", "hex", "getTime", "in_timezone", "in_tz", "to"),
}
"""Methods after which something of the text is still there."""
_DUMPS = {"json.dumps", "orjson.dumps", "ujson.dumps", "yaml.dump", "yaml.safe_dump", "pprint.pformat"}


def read_call(reader: Reader, node: ast.Call, here: Here) -> Value:
    """What a call gives that is no source itself."""
    name = reader.module.imported(node.func)
    if name == "sorted" and node.args:
        value = without_order(reader.read(node.args[0], here))
        return value if has_source(value) else reader.unknown(node, here)
    source = reader.orders.unordered(node, here) or length(node, reader.module)
    if source is not None:
        return ((Slot(node, here.point, here.point, source),),)
    if (name in _HANDS_ON or name in _DUMPS) and node.args:
        return reader.written_out(node.args[0], reader.read(node.args[0], here), here)
    if name in _ALL_ARGUMENTS:
        return reader.sources_only(joined(reader.part(part, here) for part in node.args), node, here)
    if name in _OF_TIME and len(node.args) > _OF_TIME[name]:
        return reader.narrow(reader.part(node.args[-1], here), node, here)
    scope = reader.names.function(node.func, here)
    if scope is not None:
        value = reader.returned(scope, arguments_of(node, scope, here), here)
        return value if value != EMPTY else reader.unknown(node, here)
    imported = reader.names.imported(node.func, here)
    if imported is not None and imported.function is not None:
        value = elsewhere(reader, imported, node, here, arguments_of(node, imported.function, here))
        return value if value != EMPTY else reader.unknown(node, here)
    if isinstance(node.func, ast.Attribute):
        return _read_method(reader, node, node.func, here)
    return reader.unknown(node, here)


def _read_method(reader: Reader, node: ast.Call, func: ast.Attribute, here: Here) -> Value:
    if func.attr == "join" and len(node.args) == 1:
        return reader.part(node.args[0], here)
    if func.attr == "format":
        return _fill(reader, node, func.value, here, "format")
    if func.attr in ("substitute", "safe_substitute"):
        return _fill(reader, node, func.value, here, "dollar")
    if func.attr in ("render", "render_async"):
        return _fill(reader, node, func.value, here, "braces")
    foreign = reader.module.imported(func) is not None and reader.names.imported(func.value, here) is None
    if func.attr not in _METHODS or foreign:
        return reader.unknown(node, here)
    inner = reader.read(func.value, here)
    if func.attr == "replace" and len(node.args) >= 2:
        return _replaced(reader, node, inner, here)
    if not has_source(inner):
        return inner if func.attr in ("strip", "getvalue", "lstrip", "rstrip") else reader.unknown(node, here)
    return reader.narrow(inner, node, here)


def _replaced(reader: Reader, node: ast.Call, inner: Value, here: Here) -> Value:
    """``TEXT.replace("{date}", value)`` puts a value into a text."""
    pattern, text = constant(reader.read(node.args[0], here)), constant(inner)
    value = reader.part(node.args[1], here)
    if not has_source(value):
        return inner
    if not pattern or not text or pattern not in text:
        return joined((inner, value))
    parts = text.split(pattern)
    return joined([words(parts[0])] + [piece for part in parts[1:] for piece in (value, words(part))])


def _fill(reader: Reader, node: ast.Call, template: ast.expr, here: Here, style: str) -> Value:
    """A template that is filled in; where its text is not known, its values one after the other."""
    text = constant(reader.read(template, here))
    parts: Parts | None = None
    if text is not None:
        parts = {"format": format_parts, "dollar": dollar_parts, "braces": brace_parts}[style](text)
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    extra = [keyword.value for keyword in node.keywords if keyword.arg is None]
    if style != "format":
        extra += node.args
    for group in extra:
        if isinstance(group, ast.Dict):
            for key, value in zip(group.keys, group.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    named[key.value] = value
    values: dict[int | str, ast.expr] = dict(enumerate(node.args))
    values.update(named)
    if parts is None:
        filled = joined([reader.read(template, here), *(reader.part(value, here) for value in values.values())])
        return filled if has_source(filled) else reader.unknown(node, here)
    return joined(_filled(reader, part, values, node, here) for part in parts)


def _filled(
    reader: Reader, part: str | Field, values: Mapping[int | str, ast.expr], node: ast.expr, here: Here
) -> Value:
    if isinstance(part, str):
        return words(part)
    if part.key not in values:
        return ((Slot(node, here.point, here.point, label=str(part.key)),),)
    value = reader.part(values[part.key], here)
    return reader.narrow(value, values[part.key], here, part.pattern) if part.pattern else value


def read_percent(reader: Reader, node: ast.BinOp, here: Here) -> Value:
    """``"… %s …" % value``."""
    text = constant(reader.read(node.left, here))
    values: dict[int | str, ast.expr] = {0: node.right}
    if isinstance(node.right, ast.Tuple):
        values = dict(enumerate(node.right.elts))
    elif isinstance(node.right, ast.Dict):
        pairs = zip(node.right.keys, node.right.values, strict=True)
        values = {
            key.value: value for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    if text is None or "%" not in text:
        return reader.unknown(node, here)
    return joined(_filled(reader, part, values, node, here) for part in percent_parts(text))


def is_dump(reader: Reader, node: ast.expr) -> bool:
    """A call that writes JSON."""
    return isinstance(node, ast.Call) and reader.module.imported(node.func) in _DUMPS


def is_load(reader: Reader, node: ast.expr) -> bool:
    """A call that parses JSON."""
    if not isinstance(node, ast.Call):
        return False
    return (
        reader.module.imported(node.func) in ("json.loads", "orjson.loads", "ujson.loads")
        or last_word(node.func) == "loads"
    )
