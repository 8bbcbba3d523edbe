"""Finds a template and the tokenizer to count with: a ``.jinja`` file, a model's folder or name, a ``tokenizer_config.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError
from agentcache.lint.command.model import load_tokenizer
from agentcache.lint.templates.writer import TemplateSource

DEFAULT_TOKENIZER = "smollm2"
_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class Subject:
    """What is checked.

    Attributes:
        name: for the report.
        plain: the template.
        with_tools: the one for conversations with tools, where the model has another.
        tokenizer: what tokens are counted with.
        tokenizer_name: its name, for the report.
        own: it is the template's own tokenizer, as far as can be told.
        named_tokens: ``bos_token`` … -> text.
    """

    name: str
    plain: TemplateSource
    tokenizer: Tokenizer
    tokenizer_name: str
    with_tools: TemplateSource | None = None
    own: bool = False
    named_tokens: Mapping[str, str] = field(default_factory=dict)


def find_subject(name: str, tokenizer: str | None, note: Callable[[str], None]) -> Subject:
    """
    Args:
        name: what the command line names.
        tokenizer: the model whose tokenizer counts; by default the template's own, else ``smollm2``'s.
        note: hears what is fetched or converted.

    Raises:
        AgentCacheError: there is no template, or no tokenizer.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix != ".json":
        return _of_file(path, tokenizer, note)
    if path.is_file():
        return _of_config(path, tokenizer, note)
    if path.is_dir() and not (path / "tokenizer.json").is_file():
        for inside in (path / "chat_template.jinja", path / _CONFIG):
            if inside.is_file():
                return find_subject(str(inside), tokenizer, note)
        raise AgentCacheError(f"{name}: got a folder without chat_template.jinja, {_CONFIG} or tokenizer.json")
    if not path.exists() and (path.suffix in (".jinja", ".jinja2", ".j2", ".json") or name.startswith((".", "/", "~"))):
        raise AgentCacheError(f"{name}: no such file")
    model = load_tokenizer(name, note)
    counted = model if tokenizer is None else load_tokenizer(tokenizer, note)
    folder = path if path.is_dir() else None
    templates = {key: _in_folder(folder, name, key, text) for key, text in model.chat_templates.items()}
    plain = templates.get("default") or (next(iter(templates.values())) if len(templates) == 1 else None)
    if plain is None:
        raise AgentCacheError(f"{name}: got a model without a chat template, expected one to check")
    return Subject(
        name,
        plain,
        counted,
        tokenizer or name,
        templates.get("tool_use"),
        own=tokenizer is None or counted.chat_template == model.chat_template,
        named_tokens=model.named_tokens,
    )


def _of_file(path: Path, tokenizer: str | None, note: Callable[[str], None]) -> Subject:
    source = TemplateSource(str(path), _read(path))
    beside = path.parent / "tokenizer.json"
    if tokenizer is None and beside.is_file():
        counted = Tokenizer.from_folder(path.parent)
        return Subject(str(path), source, counted, str(path.parent), own=True, named_tokens=counted.named_tokens)
    chosen = tokenizer or DEFAULT_TOKENIZER
    counted = load_tokenizer(chosen, note)
    return Subject(str(path), source, counted, chosen, own=tokenizer is not None, named_tokens=counted.named_tokens)


def _of_config(path: Path, tokenizer: str | None, note: Callable[[str], None]) -> Subject:
    """A ``tokenizer_config.json``, alone or in a model's folder."""
    try:
        config = json.loads(_read(path))
    except ValueError as error:
        raise AgentCacheError(f"{path}: cannot be read: {error}") from None
    entry = config.get("chat_template") if isinstance(config, dict) else None
    templates: dict[str, str] = {}
    if isinstance(entry, str):
        templates["default"] = entry
    elif isinstance(entry, list):
        templates = {str(item.get("name")): str(item.get("template")) for item in entry if isinstance(item, dict)}
    if "default" not in templates:
        raise AgentCacheError(f"{path}: got no chat_template, expected a {_CONFIG} that holds one")
    sources = {key: TemplateSource(str(path), text, _inside(key)) for key, text in templates.items()}
    own = tokenizer is None and (path.parent / "tokenizer.json").is_file()
    chosen = str(path.parent) if own else tokenizer or DEFAULT_TOKENIZER
    counted = Tokenizer.from_folder(path.parent) if own else load_tokenizer(chosen, note)
    named = {**counted.named_tokens, **_named(config)}
    tools = sources.get("tool_use")
    return Subject(str(path), sources["default"], counted, chosen, tools, own or tokenizer is not None, named)


def _named(config: Mapping[str, object]) -> dict[str, str]:
    """``bos_token`` … of a configuration: strings, or objects with ``content``."""
    named = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and not key.startswith("add_") and isinstance(text, str):
            named[key] = text
    return named


def _in_folder(folder: Path | None, name: str, key: str, text: str) -> TemplateSource:
    """The template ``key`` of a model, with the file that it stands in."""
    if folder is None:
        return TemplateSource(name, text, _inside(key))
    own = folder / "chat_template.jinja" if key == "default" else folder / "additional_chat_templates" / f"{key}.jinja"
    return (
        TemplateSource(str(own), text) if own.is_file() else TemplateSource(str(folder / _CONFIG), text, _inside(key))
    )


def _inside(key: str) -> str:
    return "chat_template" if key == "default" else f"chat_template[{key}]"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise AgentCacheError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise AgentCacheError(f"{path}: cannot be read: {error}") from None
