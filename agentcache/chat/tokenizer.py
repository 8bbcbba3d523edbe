"""Text to token ids and back, for a model folder in Hugging Face layout."""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from agentcache.chat.controls import LiteralTokenizer, control_pattern, encoding_of, is_marker
from agentcache.chat.pieces import PieceRule, piece_rule
from agentcache.chat.text import without_surrogates
from agentcache.errors import UnsupportedModelError

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class TokenizerFiles:
    """What a model folder says about its tokenizer."""

    backend: tokenizers.Tokenizer
    """``tokenizer.json``, loaded."""
    decoder: dict[str, Any] | None
    """Its ``decoder`` entry."""
    config: dict[str, Any]
    """``tokenizer_config.json``, with the names of special tokens as plain strings."""
    chat_templates: dict[str, str]
    eos_token_ids: frozenset[int]
    """Those that ``config.json`` and ``generation_config.json`` name."""


class Tokenizer:
    """Text to token ids and back.  Safe to share between threads.

    Decoding never cleans up spaces (``clean_up_tokenization_spaces`` is ignored): what was shown of a text must not
    change when more of it arrives.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        self._backend = files.backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self.bos_token: str | None = files.config.get("bos_token")
        self.eos_token: str | None = files.config.get("eos_token")
        self.named_tokens: dict[str, str] = {name: files.config[name] for name in _NAMED_TOKENS if name in files.config}
        """What templates may print: ``bos_token``, ``eos_token``, ``unk_token`` ... -> text."""
        self.chat_templates = files.chat_templates
        self.chat_template = _default_template(files.chat_templates)
        self._mark_special(files.config)
        self._configure_bos_eos(files.config)

        added = self._backend.get_added_tokens_decoder()
        self.added_tokens: dict[int, str] = {token: item.content for token, item in added.items()}
        self.special_tokens: dict[str, int] = {item.content: token for token, item in added.items() if item.special}
        self.control_tokens: dict[str, int] = self.special_tokens | {
            text: token for token, text in self.added_tokens.items() if is_marker(text)
        }
        self._controls = control_pattern(self.control_tokens)
        self.normalizes_controls: bool = self._backend.normalizer is not None and any(
            added[token].normalized for token in self.control_tokens.values()
        )
        """Whether control tokens are looked for in the text as ``normalized`` rewrites it."""
        controls = [added[token] for token in self.control_tokens.values()]
        self._separate = not self.normalizes_controls and not any(item.lstrip or item.single_word for item in controls)
        self.vocab_size: int = max([self._backend.get_vocab_size(), *(token + 1 for token in added)])
        eos = self._id(self.eos_token)
        self.eos_token_ids: frozenset[int] = files.eos_token_ids | ({eos} if eos is not None else set())

        self._rule: PieceRule = piece_rule(files.decoder)
        self._special_ids = frozenset(self.special_tokens.values())
        self._bytes: dict[int, bytes] = {}
        self._literal: LiteralTokenizer | None = None
        self._literal_lock = threading.Lock()
        bos = self._id(self.bos_token)
        self._added_bos = bos if bos is not None and self._backend.encode("").ids[:1] == [bos] else None

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json`` and what stands beside it.

        ``tokenizer_config.json``, ``special_tokens_map.json``, ``generation_config.json``, ``config.json``,
        ``chat_template.jinja`` and ``additional_chat_templates/`` are read when they exist.

        Raises:
            UnsupportedModelError: no ``tokenizer.json``, a broken file, or a decoder that cannot be streamed.
        """
        return cls(read_tokenizer_files(Path(folder)))

    # -- text to ids

    def encode(self, text: str, *, add_special_tokens: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of ``text``.

        Args:
            add_special_tokens: put what the tokenizer is configured to put around a text (such as BOS).
            parse_special: let control tokens that are spelled out in ``text`` become control tokens; when false they
                never do, whatever the text.
        """
        text = without_surrogates(text)
        if parse_special:
            return list(encoding_of(self._backend, text, add_special_tokens=add_special_tokens).ids)
        return self.literal.encode(text, add_special_tokens=add_special_tokens)[0]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids and the characters ``[start, end)`` that each stands for; control tokens are parsed."""
        encoding = encoding_of(self._backend, text)
        return encoding.ids, encoding.offsets

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a raw prompt: with what the tokenizer is configured to add, but never a second BOS.

        Control tokens that are spelled out in ``text`` are parsed.
        """
        ids = self.encode(text, add_special_tokens=True)
        if self._added_bos is not None and ids[1:2] == [self._added_bos]:
            del ids[0]
        return ids

    def last_control_before(self, text: str, position: int) -> int:
        """Where the last control token that ends at or before ``position`` begins; 0 when there is none."""
        width = 1024
        while self._controls is not None:
            low = max(0, position - width)
            found = [match.start() for match in self._controls.finditer(text, low, position)]
            if found:
                return found[-1]
            if low == 0:
                break
            width *= 4
        return 0

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The tokenizer proper, to look at."""
        return self._backend

    def borders(self, text: str) -> list[int]:
        """Where control tokens begin in ``text``: what stands on either side is tokenised as if the other were not there.

        None where that is not so: where a control token takes white space before it along, or is looked for in the text as
        the normaliser rewrites it.
        """
        if self._controls is None or not self._separate:
            return []
        return [match.start() for match in self._controls.finditer(text)]

    @property
    def literal(self) -> LiteralTokenizer:
        """The twin that makes no control tokens; built when it is first needed."""
        with self._literal_lock:
            if self._literal is None:
                self._literal = LiteralTokenizer(json.loads(self._backend.to_str()), self.control_tokens)
            return self._literal

    def normalized(self, text: str) -> str:
        """``text`` as the tokenizer's normaliser rewrites it before it looks for added tokens."""
        normalizer = self._backend.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    # -- ids to text

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool = True, shown: Container[int] = frozenset()
    ) -> str:
        """The text of ``ids``; control tokens are left out but for those in ``shown``.  Ids outside the vocabulary are skipped.

        Bytes that are no UTF-8 become U+FFFD, one for each cut or invalid sequence.  (Hugging Face's byte fallback gives
        one for every byte of a run of byte tokens if any of them is invalid, which no stream can do.)
        """
        kept = list(ids)
        if skip_special_tokens:
            kept = [token for token in kept if token not in self._special_ids or token in shown]
        if self._rule.depends_on_first:
            kept = [token for token in kept if self._piece(token) is not None]
            pieces = [self.piece_bytes(token, first=i == 0) for i, token in enumerate(kept)]
        else:
            pieces = [self.token_bytes(token) for token in kept]
        text = b"".join(pieces).decode("utf-8", "replace")
        return text[strip_length(text, self._rule.strip, self._rule.strip_count) :]

    def token_text(self, token: int) -> str:
        """The text of one token, its leading space included; U+FFFD where it holds only part of a character."""
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that ``token`` adds to a text, leading space included; empty outside the vocabulary."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self.piece_bytes(token, first=False)
        return found

    def piece_bytes(self, token: int, *, first: bool) -> bytes:
        """The same, not cached; some tokenizers spell the first token of a text in another way."""
        piece = self._piece(token)
        return b"" if piece is None else self._rule.to_bytes(piece, first)

    @property
    def rule(self) -> PieceRule:
        """How tokens become bytes; for streams."""
        return self._rule

    def is_special(self, token: int) -> bool:
        """Whether ``decode`` leaves ``token`` out by default."""
        return token in self._special_ids

    def is_known(self, token: int) -> bool:
        """Whether ``token`` is in the vocabulary."""
        return self._piece(token) is not None

    def _piece(self, token: int) -> str | None:
        return self._backend.id_to_token(token) if 0 <= token < self.vocab_size else None

    def _id(self, text: str | None) -> int | None:
        return None if text is None else self._backend.token_to_id(text)

    # -- set-up

    def _mark_special(self, config: Mapping[str, Any]) -> None:
        """Tokens that the configuration calls special are special, as long as they exist."""
        extra = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
        names = list(self.named_tokens.values())
        names += [_text_of(item) or "" for item in (extra.values() if isinstance(extra, dict) else extra)]
        for item in (config.get("added_tokens_decoder") or {}).values():
            if isinstance(item, dict) and item.get("special"):
                names.append(str(item["content"]))
        known = {item.content: item for item in self._backend.get_added_tokens_decoder().values()}
        for name in dict.fromkeys(names):
            if self._id(name) is None or (name in known and known[name].special):
                continue
            token = known.get(name, tokenizers.AddedToken(name, normalized=False))
            token.special = True
            self._backend.add_special_tokens([token])

    def _configure_bos_eos(self, config: Mapping[str, Any]) -> None:
        """``add_bos_token`` / ``add_eos_token`` in the configuration outrank the post-processor, as in transformers."""
        if "add_bos_token" not in config and "add_eos_token" not in config:
            return
        bos = self.bos_token if config.get("add_bos_token") and self._id(self.bos_token) is not None else None
        eos = self.eos_token if config.get("add_eos_token") and self._id(self.eos_token) is not None else None
        self._backend.post_processor = processors.TemplateProcessing(
            single=[token for token in (bos, "$A", eos) if token],
            pair=[token for token in (bos, "$A", eos, bos, "$B:1", eos) if token],
            special_tokens=[(token, self._id(token)) for token in dict.fromkeys((bos, eos)) if token],
        )


def strip_length(text: str, char: str, count: int) -> int:
    """How many of the first ``count`` characters of ``text`` are ``char``."""
    length = 0
    while length < min(count, len(text)) and text[length] == char:
        length += 1
    return length


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Read what ``Tokenizer.from_folder`` describes.

    Raises:
        UnsupportedModelError: no ``tokenizer.json``, or a file that is not what it should be.
    """
    backend, decoder = _read_backend(folder / "tokenizer.json")
    config = _read_json(folder / "special_tokens_map.json") | _read_json(folder / "tokenizer_config.json")
    for name in _NAMED_TOKENS:
        text = _text_of(config.pop(name, None))
        if text is not None:
            config[name] = text
    eos: set[int] = set()
    for source in (_read_json(folder / "config.json"), _read_json(folder / "generation_config.json")):
        inner = source.get("text_config")
        for value in (source.get("eos_token_id"), inner.get("eos_token_id") if isinstance(inner, dict) else None):
            eos.update(token for token in (value if isinstance(value, list) else [value]) if isinstance(token, int))
    return TokenizerFiles(backend, decoder, config, _read_templates(folder, config), frozenset(eos))


def _read_backend(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any] | None]:
    if not path.is_file():
        raise UnsupportedModelError(
            f"{path.parent}: no tokenizer.json, expected a folder in Hugging Face layout with one"
        )
    definition = _read_json(path)
    try:
        return tokenizers.Tokenizer.from_file(str(path)), definition.get("decoder")
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        raise UnsupportedModelError(f"{path}: not a tokenizer that can be loaded: {error}") from None


def _read_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> source.  A file of its own outranks the entry in ``tokenizer_config.json``."""
    templates: dict[str, str] = {}
    entry = config.get("chat_template")
    if isinstance(entry, str):
        templates["default"] = entry
    elif isinstance(entry, list):
        templates.update({str(item["name"]): str(item["template"]) for item in entry if isinstance(item, dict)})
    elif isinstance(entry, dict):
        templates.update({str(name): str(source) for name, source in entry.items()})
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text("utf-8")
    if (folder / "chat_template.jinja").is_file():
        templates["default"] = (folder / "chat_template.jinja").read_text("utf-8")
    return templates


def _default_template(templates: Mapping[str, str]) -> str | None:
    if "default" in templates:
        return templates["default"]
    return next(iter(templates.values())) if len(templates) == 1 else None


def _text_of(token: Any) -> str | None:
    """Special tokens are written as strings or as ``{"content": ...}``."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path}: got {type(value).__name__}, expected a JSON object")
    return value
