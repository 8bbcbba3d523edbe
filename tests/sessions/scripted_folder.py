"""A model that says exactly what a test wants, token by token, as a model folder.

Attention and feed-forward layers add nothing (their output projections are zero), each scripted token has an embedding of
its own, and the head maps each to its successor.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tiny_folder import VOCAB, tiny_llama
from tiny_tokenizer import write_tokenizer

CORPUS = ("the cache keeps pages of keys and values and the agent sends the same long beginning again and again",)


def write_scripted_folder(folder: Path, chain: list[int], template: str | None = None, eos: int | None = None) -> Path:
    """``chain[0]`` is the last token of a prompt; greedy decoding then emits the others, which must all differ.

    Args:
        template: chat template, instead of ChatML.
        eos: the token that ends a reply.
    """
    assert len(set(chain)) == len(chain) <= 64
    model = tiny_llama(eos_token_id=eos)
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()
        model.lm_head.weight.zero_()
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        for place, token in enumerate(chain):
            model.model.embed_tokens.weight[token, place] = 1.0
            if place + 1 < len(chain):
                model.lm_head.weight[chain[place + 1], place] = 5.0
    model.save_pretrained(folder)
    write_tokenizer(folder, CORPUS, VOCAB)
    if template is not None:
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(config | {"chat_template": template}), "utf-8")
    return folder
