"""What a reply must look like: JSON, a JSON schema, a Lark grammar or a pattern, compiled to masks over the vocabulary.

::

    schema ──► Lark text ──► parser (compiled once, kept) ──copy──► LlConstraint of one sequence
                                                                       mask ──► sampler ──► token ──► advance

The parsing is llguidance's (https://github.com/guidance-ai/llguidance), which is imported when the first grammar is asked
for.  It is told each token's bytes as our own detokeniser shows them, so what a mask allows is what readers see.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import RequestError
from agentcache.request import ConstraintError

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_TEXT = 256 * 1024
"""Characters of one grammar or schema."""
MAX_DEPTH = 64
"""Levels of one schema; the library reads up to 128."""
MAX_PROPERTIES = 1_000
"""Properties in one schema, required ones counted twice, and arrays and objects in ``enum``: the parser takes time in the
square of what may stand at one place."""
MAX_CHOICES = 500
"""Schemas in all ``anyOf``, ``oneOf`` and ``allOf`` of one schema, for the same reason."""
MAX_STATES = 50_000
"""States that the compiler makes for ``multipleOf`` (one a remainder) and pairs of ``patternProperties`` (about two each)."""
MAX_MEETING = 8
"""Patterns and formats that one string may have to fit at once: the compiler looks whether any text does, in exponential time."""
_MEETING = frozenset(
    {"allOf", "anyOf", "oneOf", "$ref", "pattern", "format", "minLength", "maxLength", "const", "enum"}
)
_KEPT = 128
"""Compiled grammars that are kept: agents send the same tools with every turn."""
_TRIED = 4
"""Tokens of a reply that are tried when a grammar is compiled."""
_MARKER = b"\xff"
"""Begins the bytes of a special token for the library; no UTF-8 text holds it."""
_UNFORCED = '%llguidance {"no_forcing": true}\n'
"""Where one text alone can follow, any tokens that spell it will do: which of them is the model's choice."""
_NOTHING_FITS = "no token of this model's vocabulary can follow"
_SPACING = {"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": False}
"""One optional space behind a comma or colon and none elsewhere: a weak model has no white space to lose itself in."""


class GrammarCompiler:
    """Compiles grammars for one model.  Safe to share between threads; compiling takes milliseconds to about a second, so
    it belongs on a thread that nobody waits on.

    Args:
        vocab_size: how many logits the model has; rows beyond the tokenizer's vocabulary are never allowed.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._vocabulary: _Vocabulary | None = None
        self._kept: OrderedDict[tuple[bytes, str], LlGrammar] = OrderedDict()
        self._lock = threading.Lock()
        self._compiling = threading.Lock()
        """Held while a grammar is compiled, so that costly ones take no more than one core."""

    def json_object(self, param: str = "response_format") -> LlGrammar:
        """Any JSON object."""
        return self.json_schema({"type": "object"}, param=param)

    def json_schema(
        self, schema: Mapping[str, Any], strict: bool = True, *, param: str = "response_format.json_schema.schema"
    ) -> LlGrammar:
        """JSON that fits ``schema`` (draft 2020-12), its properties in the order of the schema.

        Args:
            strict: refuse what cannot be enforced; otherwise such keywords are ignored.
            param: the field of the request that holds the schema.

        Raises:
            RequestError: no schema, one that cannot be enforced, or one that is too large.
        """
        return self.lark(f"start: {json_rule(schema, strict, param=param)}", param=param)

    def lark(self, text: str, *, param: str = "tools", root: bytes = b"") -> LlGrammar:
        """What the rule ``start`` of a grammar in llguidance's dialect of Lark matches, from its first byte to its last.

        ::

            start: call ("\\n" call)*
            call: <[49152]> "\\n" body "\\n" <[49153]>          control tokens by id
            body: %json {"type": "object", "x-guidance": {...}}    a schema, as ``json_rule`` writes it

        A name in angle brackets without quotes (``<|python_tag|>``) is the control token of that name, and an error where
        the tokenizer has none; ``<[7]>`` and ``<[7-9,12]>`` are tokens by id.  Both stand in rules (lower case), never in
        terminals (upper case).  Between quotes the same characters are plain text and match no control token.  End tokens
        are not written: each of them is allowed wherever the grammar may end.

        Args:
            root: the namespace that asks.  How long it takes must not tell one tenant which tools another one has.

        Raises:
            RequestError: not a grammar, or one that is too large.
        """
        return self._get(text, param, root)

    def regex(self, pattern: str, *, param: str = "regex") -> LlGrammar:
        """What ``pattern`` matches as a whole: Rust's regular expressions, without look-around.

        Raises:
            RequestError: not such a pattern, or one that is too large.
        """
        return self._get(f"start: /{_llguidance(param).regex_to_lark(pattern)}/", param)

    def _get(self, text: str, param: str, root: bytes = b"") -> LlGrammar:
        if len(text) > MAX_TEXT:
            raise RequestError(f"{param}: got {len(text):,} characters, expected at most {MAX_TEXT:,}", param)
        found = self._known(root, text)
        if found is not None:
            return found
        with self._compiling:
            found = self._known(root, text)  # somebody else may just have compiled it
            if found is None:
                if self._vocabulary is None:
                    self._vocabulary = _Vocabulary(self._tokenizer, self._vocab_size, param)
                found = self._vocabulary.compile(text, param)
                with self._lock:
                    self._kept[root, text] = found
                    while len(self._kept) > _KEPT:
                        self._kept.popitem(last=False)
        return found

    def _known(self, root: bytes, text: str) -> LlGrammar | None:
        with self._lock:
            if (root, text) in self._kept:
                self._kept.move_to_end((root, text))
            return self._kept.get((root, text))


class LlGrammar:
    """A compiled grammar: a ``request.Grammar``."""

    def __init__(self, matcher: LLMatcher, vocabulary: _Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    def start(self) -> LlConstraint:
        """At the beginning of a reply."""
        return LlConstraint(self._matcher.deep_copy(), self._vocabulary)


class LlConstraint:
    """One sequence's place in its grammar: a ``request.Constraint``.

    What fails inside the library is kept until ``advance``, which fails one sequence, while a mask serves a whole step.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: _Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._at_start = True
        self._mask: NDArray[np.uint32] | None = None
        self._failure: str | None = None

    def mask(self) -> NDArray[np.uint32]:
        if self._mask is None:
            self._mask = self._computed()
        return self._mask

    def _computed(self) -> NDArray[np.uint32]:
        known = self._vocabulary.known
        if self._failure is not None:
            return known
        try:
            found = np.frombuffer(self._matcher.compute_bitmask(), dtype="<u4")[: len(known)] & known
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this sequence only
            self._failure = str(error)
            return known
        if self._at_start:
            found &= self._vocabulary.may_begin
        if self._matcher.is_error():
            self._failure = _reason(self._matcher.get_error())
        elif not found.any() and not self._matcher.is_accepting():
            self._failure = _NOTHING_FITS
        return found if self._failure is None else known

    def advance(self, token: int) -> None:
        if self._failure is None and not self._matcher.consume_token(token):
            self._failure = _reason(self._matcher.get_error())
        if self._failure is not None:
            raise ConstraintError(f"the reply cannot be held to its grammar: {self._failure}")
        self._mask = None
        self._at_start = False

    @property
    def finished(self) -> bool:
        if self._failure is not None or not self._matcher.is_accepting():
            return False
        return self._matcher.is_stopped() or not (self.mask() & ~self._vocabulary.ends).any()


class _Vocabulary:
    """The tokens of one model as the library wants them, and as masks.

    ::

        ids:   | tokens and holes .............. | padding of the model's logits | <end>
        bytes:   as shown; \\xff name: control     none: never allowed             only where no id ends a reply
    """

    def __init__(self, tokenizer: Tokenizer, size: int, param: str) -> None:
        if tokenizer.rule.to_bytes("a", False) == b" a":
            raise RequestError(
                f"{param}: got a format for the reply, but this model's tokenizer puts a space between all tokens",
                param,
            )
        self._library = _llguidance(param)
        self._tokenizer = tokenizer
        ends = sorted(token for token in tokenizer.eos_token_ids if token < size)
        controls = {token: text for text, token in tokenizer.control_tokens.items()}
        controls |= {token: tokenizer.token_text(token) for token in ends if token not in controls}
        controls = {token: text for token, text in controls.items() if token < size}
        self.tokens = [_plain_bytes(tokenizer, token) for token in range(size)]
        for token, text in controls.items():
            self.tokens[token] = _MARKER + text.encode()
        self.ends = _bits(ends, size)
        self.known = _bits((token for token, text in enumerate(self.tokens) if text), size)
        rule = tokenizer.rule
        self._drops_space = rule.depends_on_first or rule.strip_count > 0
        self.may_begin = self.known if not rule.depends_on_first else _bits(self._beginnings(), size)
        # What the library reads of an object that stands for a tokenizer.
        self.is_tokenizer_wrapper = True
        self.special_token_ids = list(controls)
        self.bos_token_id = None
        self.eos_token_id = ends[0] if ends else None
        self._for_library = self._library.LLTokenizer(self, eos_token=ends or None)
        self._limits = self._library.LLParserLimits(
            max_items_in_row=4 * MAX_PROPERTIES + 100,
            step_max_items=20_000,
            max_lexer_states=50_000,
            verbose_errors=False,
        )

    def _beginnings(self) -> Iterable[int]:
        """Tokens that lose nothing but one leading space at the beginning of a reply."""
        for token, text in enumerate(self.tokens):
            first = self._tokenizer.piece_bytes(token, first=True)
            if text.startswith(_MARKER) or first in (text, text.removeprefix(b" ")):
                yield token

    def compile(self, text: str, param: str) -> LlGrammar:
        """Compile Lark text, and try the first steps, in which what is too complex shows itself.

        Raises:
            RequestError: it cannot be compiled.
        """
        text = _UNFORCED + text
        if self._drops_space:  # the model may begin with the space that our detokeniser drops
            top: dict[str, str] = {"lark_grammar": _UNFORCED + 'start: " "? @reply'}
            text = json.dumps({"grammars": [top, {"name": "reply", "lark_grammar": text}]})
        matcher = self._library.LLMatcher(self._for_library, text, log_level=0, limits=self._limits)
        matcher.compute_bitmask()  # copies keep what was worked out for it
        tried = matcher.deep_copy()
        for _ in range(_TRIED):
            mask = np.frombuffer(tried.compute_bitmask(), dtype="<u4")[: len(self.known)]
            allowed = np.flatnonzero(np.unpackbits((mask & self.known & ~self.ends).view(np.uint8), bitorder="little"))
            if tried.is_stopped() or not len(allowed):
                break
            tried.consume_token(int(allowed[0]))
        if tried.is_error():
            raise RequestError(f"{param}: cannot be enforced: {_reason(tried.get_error())}", param)
        return LlGrammar(matcher, self)


def json_rule(schema: Mapping[str, Any], strict: bool = True, *, param: str) -> str:
    """``%json {...}``: a schema as part of a rule of Lark text.

    Raises:
        RequestError: no object, or one that is too large.
    """
    if not isinstance(schema, Mapping):
        raise RequestError(f"{param}: got {type(schema).__name__}, expected a JSON schema as an object", param)
    _Size(param).check(schema)
    options = _SPACING if strict else _SPACING | {"lenient": True}
    return f"%json {json.dumps(dict(schema) | {'x-guidance': options})}"


class _Size:
    """Counts what costs time to compile or to mask.

    Raises:
        RequestError: more than one schema may hold.
    """

    def __init__(self, param: str) -> None:
        self._param = param
        self._properties = 0
        self._choices = 0
        self._states = 0
        self._patterns = 0
        self._meetings = 1

    def check(self, schema: Mapping[str, Any]) -> None:
        level: list[Any] = [schema]
        for _ in range(MAX_DEPTH):
            below: list[Any] = []
            for value in level:
                if isinstance(value, Mapping):
                    self._add(value)
                below += value.values() if isinstance(value, Mapping) else value
            level = [value for value in below if isinstance(value, (Mapping, list))]
            if not level:
                return
        raise RequestError(f"{self._param}: got more than {MAX_DEPTH} levels, expected fewer", self._param)

    def _add(self, schema: Mapping[str, Any]) -> None:
        self._properties += len(_mapping(schema, "properties")) + len(_list(schema, "required"))
        self._properties += sum(isinstance(value, (Mapping, list)) for value in _list(schema, "enum"))
        self._choices += sum(len(_list(schema, name)) for name in ("anyOf", "oneOf", "allOf"))
        self._states += 2 * len(_mapping(schema, "patternProperties")) ** 2
        divisor = schema.get("multipleOf")
        if isinstance(divisor, (int, float)):
            digits = re.sub(r"e.*|\D", "", repr(divisor)).strip("0")
            self._states += int(digits[:9] or "0")
        self._patterns += ("pattern" in schema) + ("format" in schema)
        self._meetings += len(_list(schema, "allOf")) + max(0, len(_MEETING & schema.keys()) - 1)
        for got, most, what in (
            (self._properties, MAX_PROPERTIES, "properties"),
            (self._choices, MAX_CHOICES, "schemas in anyOf, oneOf and allOf"),
            (self._states, MAX_STATES, "states of multipleOf and patternProperties"),
            (min(self._patterns, self._meetings), MAX_MEETING, "patterns and formats that may meet in one string"),
        ):
            if got > most:
                raise RequestError(f"{self._param}: got {got:,} {what}, expected at most {most:,}", self._param)


def _mapping(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _llguidance(param: str) -> ModuleType:
    try:
        import llguidance
    except ImportError:
        raise RequestError(
            f"{param}: got a format for the reply, but the package llguidance is not installed on the server; "
            "pip install '.[serve]' in the folder of agentcache's source brings it",
            param,
        ) from None
    return llguidance


def _plain_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    found = tokenizer.token_bytes(token)
    return b"" if found.startswith(_MARKER) else found  # such a byte is no part of any UTF-8 text


def _bits(tokens: Iterable[int], size: int) -> NDArray[np.uint32]:
    """``[ceil(size / 32)]``: see ``request.Constraint``."""
    flags = np.zeros(-(-size // 32) * 32, dtype=np.uint8)
    flags[list(tokens)] = 1
    return np.packbits(flags, bitorder="little").view("<u4")


def _reason(error: str) -> str:
    """What went wrong, without the place in a text that the user never saw."""
    error = re.sub(r"\n\s*\d+ \|.*|\n?<non-verbose/>.*|\n?<(state|backtrace)>.*", "", error, flags=re.DOTALL)
    error = re.sub(r"^(at )?\d+\(\d+\): |failed to compile JSON schema: ", "", error).strip()
    if error.startswith("NoExtension"):
        return _NOTHING_FITS
    return "too complex" if not error or error.startswith("panic") else error[:300]
