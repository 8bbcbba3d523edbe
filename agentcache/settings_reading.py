"""Settings files, and what is wrong with settings in the words of the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentcache.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_CONFIG = Path("agentcache.toml")


def read_table(config: Path | None, name: str) -> dict[str, Any]:
    """The table ``[name]`` of ``config``, or of ``agentcache.toml`` if that is there; its keys as fields are spelled.

    Raises:
        SettingsError: ``config`` is no file, not TOML, or ``name`` is no table in it.
    """
    path = config or DEFAULT_CONFIG
    if not path.is_file():
        if config is not None:
            raise SettingsError(f"--config {config}: no such file")
        return {}
    try:
        table = tomllib.loads(path.read_text("utf-8")).get(name, {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: [{name}] must be a table, got {type(table).__name__}")
    return {key.replace("-", "_"): tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def flag_of(name: str) -> str:
    """A field as the command line has it."""
    return "--" + name.replace("_", "-")


def in_words(
    error: ValidationError,
    origins: Mapping[str, str] | None = None,
    *,
    flag: Callable[[str], str] = flag_of,
    secret: Collection[str] = (),
) -> SettingsError:
    """What is wrong, one sentence a fault, each by the flag that it is about.

    Args:
        origins: what is said before a field's flag, such as the file that it comes from.
        flag: a field as the command line has it.
        secret: fields whose values are not shown.
    """
    return SettingsError("\n".join(_sentence(fault, origins or {}, flag, secret) for fault in error.errors()))


def _sentence(fault: Any, origins: Mapping[str, str], flag: Callable[[str], str], secret: Collection[str]) -> str:
    message = str(fault["msg"].removeprefix("Value error, "))
    if not fault["loc"]:
        return message
    name = str(fault["loc"][0])
    place = f"{origins.get(name, '')}{flag(name)}"
    if fault["type"] == "extra_forbidden":
        return f"{place}: no such setting"
    got = "" if name in secret or message.startswith("got ") else f"got {fault['input']!r}: "
    return f"{place}: {got}{message[0].lower()}{message[1:]}"
