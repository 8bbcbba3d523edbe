"""The tokenizer and the chat template that prompts are read with."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import AgentCacheError
from agentcache.settings import default_home


def load_tokenizer(name: str, note: Callable[[str], None]) -> Tokenizer:
    """Tokenizer (and template) of a folder, or of any model that ``agentcache serve --model`` takes.

    Args:
        note: hears what is fetched or converted.

    Raises:
        AgentCacheError: there is none.
    """
    folder = Path(name).expanduser()
    if not (folder / "tokenizer.json").is_file():
        folder = _model_folder(name, note)
    return Tokenizer.from_folder(folder)


def read_template(file: Path | None) -> str | None:
    """
    Raises:
        AgentCacheError: it cannot be read.
    """
    if file is None:
        return None
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise AgentCacheError(f"--template {file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise AgentCacheError(f"--template {file}: cannot be read: {error}") from None


def renderer(tokenizer: Tokenizer, template: str | None) -> ChatRenderer:
    """One moment for all requests, or a template's clock would tick in between.

    Raises:
        AgentCacheError: the template is none for conversations.
    """
    if template is not None:
        from agentcache.lint.templates import refuse_unless_chat  # which imports this module

        refuse_unless_chat(template, tokenizer)
    started = datetime.datetime.now().astimezone()
    return ChatRenderer(tokenizer, template, clock=lambda: started)


def _model_folder(name: str, note: Callable[[str], None]) -> Path:
    try:
        from agentcache.model.hub import resolve_model

        return resolve_model(name, default_home(), progress=note).folder
    except ImportError as error:
        raise AgentCacheError(
            f"--tokenizer {name}: finding or converting a model needs the package {error.name}: "
            "pip install '.[serve]' in the folder of agentcache's source, or name a folder that holds tokenizer.json and "
            "tokenizer_config.json"
        ) from None
    except AgentCacheError as error:  # it speaks of the server's flag
        raise AgentCacheError(str(error).replace("--model", "--tokenizer")) from None
