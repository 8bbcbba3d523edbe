"""Replicas on Ray Serve: ``agentcache up --replicas N``, and ``build_app`` for people with a cluster (extra ``ray``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcache.ray.app import build_app as build_app
    from agentcache.ray.settings import ClusterSettings as ClusterSettings

__all__ = ["ClusterSettings", "build_app"]


def __getattr__(name: str) -> Any:
    """Found when they are asked for: the command line reads settings of clusters from this package, and nothing else of it."""
    if name == "build_app":
        from agentcache.ray.app import build_app

        return build_app
    if name == "ClusterSettings":
        from agentcache.ray.settings import ClusterSettings

        return ClusterSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
