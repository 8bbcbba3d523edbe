"""The dashboard shows what is there: each metric and each label that it asks for is served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "agentcache.json"
FROM_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds to whatever it scrapes."""


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text("utf-8"))


@pytest.fixture(scope="module")
def queries(dashboard) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


@pytest.fixture(scope="module")
def served(server) -> dict[str, set[str]]:
    """Labels by the name of their series."""
    server.complete([1, 2, 3], max_tokens=2)
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_and_label_is_served(queries, served):
    assert len(queries) > 30
    for query in queries:
        names = re.findall(r"\b([a-z][a-z_:]*[a-z])\{", query)
        assert names, query
        assert set(names) <= served.keys(), query
        known = FROM_THE_SCRAPE.union(*(served[name] for name in names))
        grouped = {
            label for clause in re.findall(r"(?:by|ignoring) \(?([a-z, ]+)\)", query) for label in clause.split(", ")
        }
        matched = set(re.findall(r"([a-z]+)(?:=~|!=|=)\"", query))
        assert grouped | matched <= known, query


def test_what_an_operator_looks_for_is_shown(queries):
    shown = " ".join(queries)
    for name in (
        "agentcache_cached_tokens_total", "agentcache_prompt_tokens_total", "agentcache_pages", "agentcache_miss_total",
        "agentcache_time_to_first_token_seconds_bucket", "agentcache_inter_token_latency_seconds_bucket",
        "agentcache_queue_time_seconds_bucket", "agentcache_requests", "agentcache_evictions_total",
        "agentcache_saved_prefill_seconds_total", "agentcache_preemptions_total", "agentcache_generation_tokens_total",
        "agentcache_http_requests_total",
    ):  # fmt: skip
        assert re.search(rf"\b{name}\{{", shown), name


def test_it_asks_whichever_source_is_chosen(dashboard):
    variables = {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]}
    assert variables["datasource"] == "datasource"
    for panel in dashboard["panels"]:
        for asked in (panel, *panel.get("targets", ())):
            assert asked.get("datasource", {"uid": "${datasource}"})["uid"] == "${datasource}"


def test_panels_have_ids_and_places_of_their_own(dashboard):
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
