"""Figures of docs/cluster.md against the store that they are about."""

from __future__ import annotations

from pathlib import Path

import torch

from agentcache.model.kv_store import KVStore

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"


def test_sizes_are_those_of_the_page_store():
    lines = DOCS.read_text("utf-8").partition("## Sizing")[2].partition("\n## ")[0].splitlines()
    rows = [
        [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ]
    figures = [list(map(int, row[1:])) for row in rows if row[1].isdecimal()]
    assert len(figures) > 8
    for layers, heads, dim, token, page, pages, tokens in figures:
        assert page == KVStore.bytes_per_page(layers, 16, heads, dim, torch.bfloat16)
        assert (token, pages) == (page // 16, 2**30 // page)
        assert tokens == 16 * pages
