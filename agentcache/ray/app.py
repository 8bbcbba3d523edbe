"""The Ray Serve application, for ``agentcache up`` and for people with a cluster of their own.

::

    from agentcache.ray import ClusterSettings, build_app
    from agentcache.settings import Settings

    app = build_app(Settings(model="/models/qwen", api_keys=["…"]), ClusterSettings(replicas=4, cpus_per_replica=8))

then ``serve run module:app``.  Without a module of one's own: ``serve run agentcache.ray.app:app model=/models/qwen replicas=4``,
or the same names under ``args`` in a Serve config file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentcache.engine.cores import compute_threads
from agentcache.errors import SettingsError
from agentcache.ray.places import check_ports
from agentcache.ray.settings import ClusterSettings, checked_cluster
from agentcache.ray.vault import VaultPlace, vault_name
from agentcache.settings import REPEATED, Settings, checked_settings

if TYPE_CHECKING:
    from ray.serve import Application

ENGINE = "engine"
INGRESS = "ingress"
_LAST_S = 15.0
"""What a replica gets to write what its tiers owe, when its last stream has ended."""
_REPORTED_S = 10.0
"""How often Ray hears of requests, unless its environment says otherwise; what it averages over must be longer."""
NOT_KEPT = ("max_connections", "head_timeout_s", "send_timeout_s")
"""Settings of a server's own connections that Ray's proxies know nothing of."""


def build_app(settings: Settings, cluster: ClusterSettings | None = None, *, name: str = "agentcache") -> Application:
    """An application of one ingress deployment and one of engines.

    Args:
        settings: of each engine.  Paths must mean the same on every machine of the cluster.
        name: that the application is deployed under; sessions are kept by it.

    Raises:
        SettingsError: a setting that cannot be served by several replicas, or packages that are missing.
    """
    cluster = cluster or ClusterSettings()
    checked_for_cluster(settings, cluster)
    with_ray()
    settings = _with_threads(settings, cluster)
    from ray.serve.config import RequestRouterConfig

    from agentcache.ray.deployments import Front, Replica, as_deployment
    from agentcache.ray.router import CallRouter

    drain_s = cluster.drain_s(settings)
    keeps = settings.store is not None and settings.store_sessions
    vault = None if keeps else VaultPlace(vault_name(name), cluster.session_memory)
    engines = as_deployment(
        Replica,
        name=ENGINE,
        **_number(cluster),
        max_ongoing_requests=cluster.ongoing(settings),
        ray_actor_options={"num_cpus": cpus(settings, cluster), "num_gpus": cluster.gpus_per_replica},
        graceful_shutdown_timeout_s=drain_s + _LAST_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=cluster.health_check_period_s,
        health_check_timeout_s=cluster.health_check_timeout_s,
        request_router_config=RequestRouterConfig(request_router_class=CallRouter),
    ).bind(settings, vault)
    return as_deployment(
        Front,
        name=INGRESS,
        num_replicas=cluster.ingress_replicas,
        max_ongoing_requests=cluster.ongoing(settings) * cluster.most_replicas,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=drain_s + _LAST_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=cluster.health_check_period_s,
        health_check_timeout_s=cluster.health_check_timeout_s,
    ).bind(engines, settings, cluster)


def app(args: dict[str, Any]) -> Application:
    """For ``serve run agentcache.ray.app:app NAME=VALUE …`` and ``args`` in a config file: settings of servers and of clusters.

    Raises:
        SettingsError: in the words of the command line.
    """
    names = ClusterSettings.model_fields.keys()
    given = {name.replace("-", "_"): value for name, value in args.items()}
    if foreign := sorted({"host", "port", *NOT_KEPT} & given.keys()):
        raise SettingsError(f"{', '.join(foreign)}: connections belong to Ray's proxies here; see http_options")
    cluster = checked_cluster({name: value for name, value in given.items() if name in names and name != "ray_address"})
    fields = {name: value for name, value in given.items() if name not in names}
    for name in REPEATED:
        if isinstance(fields.get(name), str):
            fields[name] = (fields[name],)
    return build_app(checked_settings(fields), cluster)


def checked_for_cluster(settings: Settings, cluster: ClusterSettings) -> None:
    """
    Raises:
        SettingsError: something that only one server can do, or that does not go together.
    """
    if settings.device == "cuda" and not cluster.gpus_per_replica:
        raise SettingsError("--device cuda without --gpus-per-replica: Ray hides GPUs that nobody reserved")
    if settings.replica is not None:
        raise SettingsError(
            f"--replica {settings.replica}: replicas of a cluster get their names from it; leave it out"
        )
    check_ports(settings, cluster.most_replicas)


def with_ray() -> None:
    """
    Raises:
        SettingsError: the packages of the extra are not installed, or Ray is set up as we cannot use it.
    """
    try:
        from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"a cluster needs the packages of the extra 'ray', and {error.name} is not installed: "
            "pip install '.[ray]' in the folder of agentcache's source"
        ) from None
    if RAY_SERVE_ENABLE_HA_PROXY:
        raise SettingsError(
            "RAY_SERVE_ENABLE_HA_PROXY is set: behind HAProxy, Ray hands requests to ingresses past its own proxies, which was "
            "not tried with agentcache; unset it"
        )


def cpus(settings: Settings, cluster: ClusterSettings) -> float:
    """CPUs that Ray reserves for a replica."""
    if cluster.cpus_per_replica is not None:
        return cluster.cpus_per_replica
    return float(settings.threads or (1 if cluster.gpus_per_replica else compute_threads()))


def _with_threads(settings: Settings, cluster: ClusterSettings) -> Settings:
    """A replica computes on as many threads as CPUs are reserved for it, unless their number is given."""
    if settings.threads is not None or cluster.gpus_per_replica:
        return settings
    return settings.model_copy(update={"threads": max(1, int(cpus(settings, cluster)))})


def _number(cluster: ClusterSettings) -> dict[str, Any]:
    if not cluster.scales:
        return {"num_replicas": cluster.least_replicas}
    from ray.serve.config import AutoscalingConfig

    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=cluster.least_replicas,
            max_replicas=cluster.most_replicas,
            initial_replicas=cluster.least_replicas,
            target_ongoing_requests=cluster.target_ongoing_requests or 8.0,
            upscale_delay_s=cluster.upscale_delay_s,
            downscale_delay_s=cluster.downscale_delay_s,
            look_back_period_s=min(30.0, max(_REPORTED_S + 1, cluster.upscale_delay_s)),
        )
    }
