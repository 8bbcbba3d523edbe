"""Answers of all replicas to one question, put together into what a single server would have said of all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers

from agentcache.local.exchange import Head
from agentcache.ray.merged_metrics import merged_metrics
from agentcache.ray.parts import Whole
from agentcache.server.watch.request_ids import REPLICA
from agentcache.server.writer import encode

_PAGES = ("total", "free", "live", "cached", "pinned", "running", "waiting")
_NOT_MERGED = frozenset({b"content-length", b"etag", REPLICA.encode()})
_FINDINGS = 100
_SUMMED = ("requests", "with_findings", "sessions", "prompt_tokens", "cached_tokens")
"""A session that moved from one replica to another counts on both."""
Bodies = Mapping[str, Any]
"""What each replica answered, by its name."""


def merged(path: str, query: Mapping[str, str], answers: Sequence[Whole]) -> Whole:
    """One answer made of several to ``path``.

    An answer that is an error stands for all: who may not ask one replica may not ask the others.

    Args:
        answers: at least one.
    """
    answers = sorted(answers)
    for answer in answers:
        if answer.head.status >= 400 and path != "/debug/check":
            return answer
    first = answers[0]
    status = max(answer.head.status for answer in answers)
    if path == "/metrics":
        openmetrics = "openmetrics" in Headers(raw=list(first.head.headers)).get("content-type", "")
        texts = {answer.replica: answer.body.decode() for answer in answers}
        body = merged_metrics(texts, openmetrics=openmetrics).encode()
    else:
        bodies = {answer.replica: json.loads(answer.body) for answer in answers}
        merge = _MERGES.get(path, _first)
        body = encode(merge(bodies, query))
    kept = [header for header in first.head.headers if header[0].lower() not in _NOT_MERGED]
    head = Head(status, [*kept, (b"content-length", str(len(body)).encode())])
    return Whole("", head, body)


def _first(bodies: Bodies, _: Mapping[str, str]) -> Any:
    return next(iter(bodies.values()))


def _pages(bodies: Bodies) -> dict[str, Any]:
    sums = {name: sum(body[name] for body in bodies.values()) for name in _PAGES}
    return {
        "page_size": _first(bodies, {})["page_size"],
        **sums,
        "tiers": _tiers([body["tiers"] for body in bodies.values()]),
    }


def _cache(bodies: Bodies, _: Mapping[str, str]) -> dict[str, Any]:
    return {**_pages(bodies), "replicas": dict(bodies)}


def _flush(bodies: Bodies, query: Mapping[str, str]) -> dict[str, Any]:
    return {"flushed": sum(body["flushed"] for body in bodies.values()), **_cache(bodies, query)}


def _tiers(all_tiers: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Tiers of one name as one: numbers are added up, in what they hold as well."""
    found: dict[str, dict[str, Any]] = {}
    for tiers in all_tiers:
        for tier in tiers:
            known = found.get(tier["name"])
            found[tier["name"]] = dict(tier) if known is None else _added(known, tier)
    return list(found.values())


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(one)
    for name, value in other.items():
        mine = result.get(name)
        if isinstance(value, Mapping) and isinstance(mine, Mapping):
            result[name] = _added(mine, value)
        elif _is_number(value) and (_is_number(mine) or name not in result):
            result[name] = value + (mine or 0)
        elif name not in result:
            result[name] = value
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sessions(bodies: Bodies, _: Mapping[str, str]) -> dict[str, Any]:
    """Each session once: of two copies the one with more turns, which is the later one."""
    found: dict[str, dict[str, Any]] = {}
    for body in bodies.values():
        for session in body["data"]:
            known = found.get(session["id"])
            if known is None or _turns(known) < _turns(session):
                found[session["id"]] = session
    return {"object": "list", "data": sorted(found.values(), key=lambda session: session["created_at"])}


def _turns(session: Mapping[str, Any]) -> tuple[int, float]:
    turns = session.get("turns")
    return (len(turns) if isinstance(turns, list) else int(turns or 0), float(session.get("expires_at") or 0))


def _tree(bodies: Bodies, _: Mapping[str, str]) -> dict[str, Any]:
    """One forest: each node says whose it is, and a namespace has one number everywhere."""
    salts: dict[str | None, int] = {}
    nodes: list[dict[str, Any]] = []
    for name, body in bodies.items():
        numbers = {space["id"]: salts.setdefault(space["salt"], len(salts)) for space in body["namespaces"]}
        start = len(nodes)
        for node in body["nodes"]:
            parent = node.get("parent")
            moved = {"parent": parent + start} if isinstance(parent, int) else {}
            ids = {"id": node["id"] + start} if isinstance(node.get("id"), int) else {}
            nodes.append({**node, "namespace": numbers[node["namespace"]], **moved, **ids, "replica": name})
    return {
        "page_size": _first(bodies, {})["page_size"],
        "namespaces": [{"id": number, "salt": salt} for salt, number in salts.items()],
        "nodes": nodes,
        "truncated": any(body["truncated"] for body in bodies.values()),
    }


def _findings(bodies: Bodies, query: Mapping[str, str]) -> dict[str, Any]:
    rows = [row for body in bodies.values() for row in body["data"]]
    continued = [row for body in bodies.values() for row in body["continued"]]
    given = query.get("limit", "")
    limit = int(given) if given.isdecimal() else _FINDINGS
    first = _first(bodies, {})
    return {
        "object": "list",
        **{name: sum(body[name] for body in bodies.values()) for name in _SUMMED},
        "misses": _all_added([body["misses"] for body in bodies.values()]),
        "data": sorted(rows, key=lambda row: row["started"], reverse=True)[:limit],
        "continued": sorted(continued, key=lambda row: row["started"], reverse=True),
        "cache": first["cache"] | _all_added([_counted(body["cache"]) for body in bodies.values()]),
        "server": first["server"],
    }


def _counted(cache: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cache[name] for name in (*_PAGES, "evictions") if name in cache}


def _all_added(all_figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for figures in all_figures:
        total = _added(total, figures)
    return total


def _check(bodies: Bodies, _: Mapping[str, str]) -> dict[str, Any]:
    broken = [f"{name}: {fault}" for name, body in bodies.items() for fault in body.get("broken", [str(body)])]
    return {"ok": not broken, "broken": broken}


_MERGES: Mapping[str, Callable[[Bodies, Mapping[str, str]], Any]] = {
    "/v1/cache": _cache,
    "/v1/cache/flush": _flush,
    "/v1/cache/tree": _tree,
    "/v1/findings": _findings,
    "/v1/sessions": _sessions,
    "/debug/check": _check,
}
