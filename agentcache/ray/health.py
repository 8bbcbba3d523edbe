"""How a cluster is, by what its replicas said of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcache.ray.parts import News


def cluster_health(told: Sequence[News], wanted: int) -> tuple[bool, dict[str, Any]]:
    """Whether requests are served, and the body of ``/health``.

    Args:
        told: by each replica that answers.
        wanted: replicas that there should be at least.
    """
    up = sum(news.healthy for news in told)
    components = {f"replica {news.replica}": _component(news) for news in sorted(told, key=lambda news: news.replica)}
    for news in told:
        for name, trouble in news.troubles.items():
            known = components.setdefault(name, {"status": "ok"})
            if trouble is not None and known["status"] == "ok":
                components[name] = {"status": "unavailable", "reason": f"{trouble} (replica {news.replica})"}
    body: dict[str, Any] = {
        "status": "ok",
        "replicas": {"up": up, "total": max(wanted, len(told))},
        "components": components,
    }
    if not up:
        reason = "no replica is there yet" if not told else "no replica can serve"
        return False, {**body, "status": "unavailable", "reason": reason}
    if up < max(wanted, len(told)) or any(part["status"] != "ok" for part in components.values()):
        body["status"] = "degraded"
    return True, body


def _component(news: News) -> dict[str, str]:
    return {"status": "ok"} if news.healthy else {"status": "unavailable", "reason": news.reason}
