"""What who routes requests must know of the engines behind it, to name pages as they do: no weights, and no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentcache.cache.hashing import namespace_root, pack_tokens, unpack_tokens
from agentcache.cache.public import PublicPrefixes
from agentcache.chat.public_prefix import read_public_prefixes
from agentcache.chat.tokenizer import Tokenizer
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "config.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)


@dataclass(frozen=True)
class ModelProfile:
    """An engine as a reader of requests sees it.  Can be pickled, and read on a machine that has no folder of the model.

    Attributes:
        root_base: the first ingredients of every namespace.
        page_size: tokens of a page.
        capacity: tokens that prompt and reply may have together.
        vocab_size: of the logits.
        files: what the model's folder says about its tokenizer and its template, by path in the folder.
        public: ids, packed, of each beginning that every namespace shares.
        settings: of the engine; they hold its API keys.
    """

    root_base: tuple[str, ...]
    page_size: int
    capacity: int
    vocab_size: int
    files: Mapping[str, bytes]
    public: tuple[bytes, ...]
    settings: Settings

    def tokenizer(self) -> Tokenizer:
        """
        Raises:
            UnsupportedModelError: as ``Tokenizer.from_folder``.
        """
        with tempfile.TemporaryDirectory(prefix="agentcache-tokenizer-") as name:
            for path, content in self.files.items():
                target = Path(name, path)
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
            return Tokenizer.from_folder(Path(name))

    def prefixes(self) -> PublicPrefixes:
        """The public beginnings, as the engine knows them."""
        root = namespace_root(*self.root_base, "public")
        return PublicPrefixes(root, self.page_size, map(unpack_tokens, self.public))


def profile_of(engine: AsyncEngine, folder: Path) -> ModelProfile:
    """
    Args:
        folder: of its model (``model.hub.resolve_model``).

    Raises:
        SettingsError: the file of public beginnings cannot be read any more.
    """
    settings, info = engine.settings, engine.info
    public = settings.public_prefix
    prefixes = [] if public is None else read_public_prefixes(public, engine.renderer, info.page_size)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for name in _FILES for path in folder.glob(name)}
    return ModelProfile(
        root_base=engine.root_base,
        page_size=info.page_size,
        capacity=info.capacity,
        vocab_size=info.vocab_size,
        files=files,
        public=tuple(map(pack_tokens, prefixes)),
        settings=settings,
    )
