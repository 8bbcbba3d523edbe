"""A token whose embedding is no number fails its own request, and nobody else who shares a beginning with it."""

from __future__ import annotations

import random
import shutil

import torch
from live import drain, live_server
from safetensors.torch import load_file, save_file


def test_who_shares_the_tokens_before_a_poisoned_one_is_served(tiny, tmp_path):
    folder = tmp_path / "poisoned"
    shutil.copytree(tiny.folder, folder)
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    tensors["model.embed_tokens.weight"][7] = torch.nan
    save_file(tensors, weights, metadata={"format": "pt"})
    numbers = random.Random(5)
    beginning, rest = ([numbers.randrange(20, 500) for _ in range(count)] for count in (60, 150))
    with live_server(folder, page_size=16, num_pages=200, prefill_chunk=64) as server:
        for _ in range(2):
            poisoned = {"prompt": [*beginning, 7, *rest], "max_tokens": 2}
            reply = server.http.post("/v1/completions", json=poisoned)
            assert reply.status_code == 500 and "not finite" in reply.text
            assert (
                server.complete([*beginning[:50], *rest[:30]], max_tokens=2)["choices"][0]["finish_reason"] == "length"
            )
            assert server.complete([*beginning, *rest], max_tokens=2)["choices"][0]["finish_reason"] == "length"
        drain(server)
