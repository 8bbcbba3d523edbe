"""What readers hand to the linter: requests, each as a chat completion's body, whatever API and file it came from.

::

    file ── reader ──► Record(body as a chat completion, places) ──► Linter ──► findings at places of the file
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

Body: TypeAlias = Mapping[str, Any]
Keys: TypeAlias = "tuple[str | int, ...]"


class Place(NamedTuple):
    """A place of a record as the file has it.

    Attributes:
        path: JSON path, such as ``messages[0].content`` or ``body.system[1].text``.
        char: character of the string at ``path``, from 0; ``None`` where the place is no string or is not known so finely.
        line: of a file that is one text, the line of the file, from 1; ``char`` is the column there, and ``path`` words for it.
    """

    path: str
    char: int | None = None
    line: int | None = None

    @property
    def json_path(self) -> str | None:
        """``path`` where there is JSON."""
        return self.path if self.line is None else None


class Places(Protocol):
    """Where the parts of ``Record.body`` stand in the file."""

    def find(self, keys: Keys, char: int | None = None) -> Place:
        """
        Args:
            keys: keys and indices into the body; for what has no place of its own, the nearest thing around it is found.
            char: character of the string there.
        """
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class PlainPlaces:
    """The body is a part of the file's record as it is.

    Attributes:
        prefix: what stands before its paths: empty, or ``body.``.
    """

    prefix: str = ""

    def find(self, keys: Keys, char: int | None = None) -> Place:
        return Place(path_of(keys, self.prefix), char)


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered to a request, where the file says it.

    Attributes:
        message: the reply in the shape of a chat message, as it was generated; ``None`` when only its ids are known.
        token_ids: as they were drawn, the end token left out; ``None`` when the file does not say.
    """

    message: Mapping[str, Any] | None = None
    token_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server reported for a request.

    Attributes:
        prompt_tokens, cached_tokens: ``None`` where it did not say.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a file.

    Attributes:
        file: name of the file, ``-`` for standard input.
        line: which one it is, from 1: line of a JSONL file, entry of an archive, first line of a transcript's turn.
        body: as a chat completion: ``messages``, ``tools``, ``tool_choice``, ``response_format``, ``chat_template_kwargs``,
            ``model``, ``cache_salt``, ``add_generation_prompt``, … with the same meaning as on the server's route.
        places: where its parts stand in the file.
        session: name of its session, where file or body says it; requests of other names are never its session's.
        scope: keeps requests apart that say different ones (``prompt_cache_key``, ``user``), without naming a session.
        prompt_ids: the prompt's token ids where the file has them: then nothing is tokenised.
        reply: what was answered; ``None`` when the file does not say.
        usage: what was reported about the answer; ``None`` when there is no answer in the file.
        source: the record's own JSON, for fixes; ``None`` where there is nothing that could be written back.
        dialect: which API the request was written for: ``chat``, ``responses``, ``anthropic``, ``completions``, ``prompt``.
        ignored: codes (or their beginnings) that the record itself asks not to be told of -> the reason it gives.
    """

    file: str
    line: int
    body: Body
    places: Places = PlainPlaces()
    session: str | None = None
    scope: str | None = None
    prompt_ids: Sequence[int] | None = None
    reply: Reply | None = None
    usage: Usage | None = None
    source: Mapping[str, Any] | None = None
    dialect: str = "chat"
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is no request, and why."""

    file: str
    line: int
    reason: str


def path_of(keys: Sequence[str | int], prefix: str = "") -> str:
    """``messages[0].content`` from ``("messages", 0, "content")``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return prefix + text.removeprefix(".")
