"""What each API key has asked for under which salt and which model: to show a key its own namespaces, and nobody else's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from xxhash import xxh3_128_digest

from agentcache.cache.hashing import namespace_root, pack_tokens, page_key

logger = logging.getLogger(__name__)

_NAMESPACES = 1024
_BEGINNINGS = 8192
_MODELS = "models.json"
_KEPT_MODELS = 16
_V = TypeVar("_V")


class Namespaces:
    """Used on the event loop only; a bounded memory for each key.

    Args:
        page_size: tokens a page; prompts are compared by their first page.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._keys: dict[str | None, _Seen] = {}

    def note(self, key: str | None, root: bytes, salt: str | None, ids: Sequence[int]) -> None:
        """``key`` was served the prompt ``ids`` in the namespace ``root``."""
        seen = self._keys.setdefault(key, _Seen())
        _put(seen.salts, root, salt, _NAMESPACES)
        if (beginning := self._beginning(ids)) is not None:
            known = seen.beginnings.get(beginning, ())
            # Two are enough to tell that there is another one.
            _put(seen.beginnings, beginning, known if root in known else (*known[-1:], root), _BEGINNINGS)

    def elsewhere(self, key: str | None, root: bytes, ids: Sequence[int]) -> bool:
        """Whether ``key`` was served a prompt with the same first page in another namespace of its own."""
        seen = self._keys.get(key)
        beginning = self._beginning(ids)
        if seen is None or beginning is None:
            return False
        return any(known != root for known in seen.beginnings.get(beginning, ()))

    def of(self, key: str | None) -> Mapping[bytes, str | None]:
        """Namespace -> salt, of one key."""
        seen = self._keys.get(key)
        return {} if seen is None else dict(seen.salts)

    def _beginning(self, ids: Sequence[int]) -> bytes | None:
        if len(ids) < self._page_size:
            return None
        return xxh3_128_digest(pack_tokens(ids[: self._page_size]))


class ModelsBefore:
    """The models that wrote to the disk tier's folder before this one, in ``models.json`` beside their pages.

    A page's name holds the model it belongs to.  So whether a key sent a beginning to one of those models can be told from
    the names of the pages that are left of it, and for no other key.

    Args:
        folder: of the disk tier; ``None`` without one: then nothing is known of other models.
        base: what the names of the served model's namespaces begin with.
        page_size: tokens a page.
    """

    def __init__(self, folder: Path | None, base: Sequence[str], page_size: int) -> None:
        self._page_size = page_size
        self._others: list[list[str]] = []
        if folder is not None:
            known = _read(folder / _MODELS)
            self._others = [other for other in known if other != list(base)]
            if not known or known[-1] != list(base):
                _write(folder / _MODELS, [*self._others, list(base)][-_KEPT_MODELS:])

    def first_pages(self, key: str | None, salt: str | None, ids: Sequence[int]) -> dict[bytes, str]:
        """Names that the first page of a prompt has under the other models, and what each model is."""
        if not self._others or len(ids) < self._page_size:
            return {}
        tokens = pack_tokens(ids[: self._page_size])
        return {page_key(namespace_root(*other, key, salt), tokens): " ".join(other) for other in self._others}


def _read(path: Path) -> list[list[str]]:
    """Nothing, where the file is missing or holds anything else than lists of texts."""
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    entries = known if isinstance(known, list) else []
    return [entry for entry in entries if isinstance(entry, list) and all(isinstance(part, str) for part in entry)]


def _write(path: Path, models: list[list[str]]) -> None:
    """In one piece; a folder that cannot be written to costs an explanation, and nothing else."""
    scratch = path.with_suffix(f".{os.getpid()}.partial")
    try:
        scratch.write_text(json.dumps(models), "utf-8")
        scratch.replace(path)
    except OSError as error:
        logger.warning("%s was not written: %s", path, error)
        with contextlib.suppress(OSError):
            scratch.unlink()


class _Seen:
    def __init__(self) -> None:
        self.salts: OrderedDict[bytes, str | None] = OrderedDict()
        self.beginnings: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()


def _put(table: OrderedDict[bytes, _V], key: bytes, value: _V, limit: int) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > limit:
        table.popitem(last=False)
