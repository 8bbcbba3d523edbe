"""Replicas and the store that they share, with a model for which fetching pages pays."""

import re
from pathlib import Path

import pytest
from real_ray import eventually, up

from agentcache_sdk import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SYSTEM = "You help with the accounts of a small shipyard, and you name each entry by its page and line. " * 30


def written(cluster) -> float:
    """Pages that all replicas together have put into the store."""
    found = re.findall(
        r'^agentcache_store_pages_total{.*what="written".*} ([\d.]+)', cluster.http.get("/metrics").text, re.M
    )
    return sum(map(float, found))


def test_a_dead_replicas_session_finds_its_pages_in_the_store(tmp_path):
    pages = f"file://{tmp_path}/pages"
    with (
        up(Path("smollm2"), tmp_path / "log", "--replicas", "2", "--store", pages) as cluster,
        Client(cluster.url) as client,
    ):
        session = client.session(system=SYSTEM)
        session.send("Where is the oak?", max_tokens=4, temperature=0)
        second = session.send("And the rope?", max_tokens=4, temperature=0)
        eventually(lambda: written(cluster) * 16 > second.usage.prompt_tokens // 2)
        cluster.kill(session.id.rpartition("-")[2])
        third = session.send("And the tar?", max_tokens=4, temperature=0)
        assert third.cache.tiers.store > second.usage.prompt_tokens // 2, third.cache
        cluster.await_replicas(2)
