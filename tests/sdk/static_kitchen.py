"""Templates, tokenizers and a driver for what the SDK does with the static part of a prompt.  No server, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tiny_tokenizer import CHATML, train_tokenizer
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from agentcache.chat.renderer import ChatRenderer
from agentcache.chat.tokenizer import Tokenizer
from agentcache.errors import ChatTemplateError
from agentcache_sdk._calls import Call, Steps
from agentcache_sdk.errors import BadRequest
from agentcache_sdk.types import Model, Tokens

T = TypeVar("T")
CORPUS = (
    "You are a careful agent. Read the file, run the tests, and say what is wrong with the parser. . . . . . .",
    "(padding) I have a question.\n\n. . . . The tools are:\n- read_file - run_tests {'type': 'function'}",
)
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
_LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_SYSTEM = "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
_REST = "{% set rest = messages[1:] if s else messages %}"
_TURNS = (
    "{% for m in rest %}{% if m.role == 'user' %}[INST] {% if loop.first %}{{ s }}\n\n{% endif %}{{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{% endif %}{% endfor %}"
)

KEEPING: Mapping[str, str] = {
    "chatml": CHATML,
    "trimming": CHATML.replace("message['content']", "message['content'] | trim"),
    "tools before the system text": "{{ tools | tojson if tools }}" + CHATML,
    "tools behind the system text": (
        _SYSTEM + _REST + "<|im_start|>system\n{{ s | trim }}\n\n{{ tools | tojson if tools }}<|im_end|>\n"
        "{% for m in rest %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    ),
    "system merged into the first user message": _SYSTEM + _REST + "{{ tools | tojson if tools }}" + _TURNS,
    "shouting": CHATML.replace("message['content']", "message['content'] | upper"),
}
"""They keep what stands at the end of the system text."""

REFUSING: Mapping[str, tuple[str, str]] = {
    "no system role": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}" + _LOOP,
        "no system role here",
    ),
    "the system text is dropped": (
        "{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}{% endfor %}",
        "does not keep",
    ),
    "the system text is cut": (_SYSTEM + _REST + "{{ s[:40] }}" + _TURNS.replace("{{ s }}", ""), "does not keep"),
    "the system text comes twice": (_LOOP + _LOOP.replace("messages", "messages[:1]"), "behind the first user text"),
    "the system text is repeated": (
        _SYSTEM + _REST + "{{ s }}<|im_end|>{{ s }}<|im_end|>" + _TURNS.replace("{{ s }}", ""),
        "more than once",
    ),
    "the length of the system text is told": (
        _SYSTEM + _REST + "{{ 'x' * (s | length) }}: {{ s }}" + _TURNS.replace("{{ s }}", ""),
        "more than once, or changes it",
    ),
    "the system text moves to the last user message": (
        _SYSTEM
        + _REST
        + "{% for m in rest %}[INST] {{ s + '\n\n' if loop.last else '' }}{{ m.content }} [/INST]{% endfor %}",
        "changes its beginning",
    ),
}
"""They do not, and what the reason says."""


def smollm2_tokenizer() -> Tokenizer:
    from agentcache.model.hub import resolve_model
    from agentcache.settings import default_home

    return Tokenizer.from_folder(resolve_model("smollm2", default_home()).folder)


def small_tokenizers(folder: Path) -> dict[str, Tokenizer]:
    """Vocabularies of some hundred tokens, of each kind that models come with, and one of bytes alone."""
    backends = {
        "byte level": train_tokenizer(CORPUS, 600),
        "bytes alone": train_tokenizer([], 258),
        "sentencepiece": _sentencepiece(),
        "tekken": _tekken(),
        "unigram": _unigram(),
    }
    made: dict[str, Tokenizer] = {}
    for name, backend in backends.items():
        place = folder / name
        place.mkdir(parents=True)
        backend.save(str(place / "tokenizer.json"))
        (place / "tokenizer_config.json").write_text("{}", "utf-8")
        made[name] = Tokenizer.from_folder(place)
    return made


_MARKS = [AddedToken(mark, special=True, normalized=False) for mark in ("<|im_start|>", "<|im_end|>")]


def _sentencepiece() -> Backend:
    """BPE over the whole text with ``▁`` for blanks and bytes for what is unknown, as Llama 2 and Mistral v1 have it."""
    backend = Backend(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", *bytes_], show_progress=False)
    # Learned word by word, so that no piece goes across a blank.
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.train_from_iterator([line.replace("\n", " ") for line in CORPUS], trainer)
    backend.pre_tokenizer = None
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(_MARKS)
    return backend


def _tekken() -> Backend:
    """Byte-level BPE behind a pattern that keeps digits apart and lets punctuation take the line ends that follow."""
    pattern = (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    from tokenizers import Regex

    backend = Backend(models.BPE(ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_special_tokens(_MARKS)
    return backend


def _unigram() -> Backend:
    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    letters = sorted(set("".join(map(chr, range(33, 127))) + "▁\n"))
    trainer = trainers.UnigramTrainer(
        vocab_size=300, initial_alphabet=letters, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(_MARKS)
    return backend


@dataclass
class Kitchen:
    """Answers the calls of steps as the server does: with the real renderer."""

    renderer: ChatRenderer
    page_size: int | None = 16
    calls: list[Call[Any]] = field(default_factory=list)

    def drive(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                self.calls.append(call)
                try:
                    answer = self.answer(call)
                except BadRequest as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def answer(self, call: Call[Any]) -> Any:
        if call.path == "/v1/models":
            return [Model(id="tiny", page_size=self.page_size)]
        assert call.path == "/tokenize" and call.body is not None
        ids = self.ids(call.body["messages"], call.body.get("tools"))
        return Tokens(tokens=ids, count=len(ids))

    def ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> list[int]:
        try:
            return self.renderer.render_text(messages, tools=tools).encode()[0]
        except ChatTemplateError as error:
            raise BadRequest(str(error), 400) from error
