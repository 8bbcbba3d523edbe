"""``agentcache up``: replicas on this machine, or on a cluster that is joined, until Ctrl-C.

::

    check settings, port, store, model ─► Ray: start one here, or join ─► Serve: proxy on host:port ─► replicas load ─► banner
                                                                                                       │ Ctrl-C, SIGTERM
    what was started here ends ◄── application deleted ◄── streams end, or are cut after drain_timeout_s ◄┘ (again: cut now)
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from agentcache.engine.cores import compute_threads
from agentcache.engine.outside import Outside
from agentcache.errors import AgentCacheError
from agentcache.kv_events.opening import open_events
from agentcache.ray.app import ENGINE, INGRESS, NOT_KEPT, build_app, checked_for_cluster, with_ray
from agentcache.ray.joining import (
    APP,
    QUIET,
    cause_of,
    check_proxies,
    claimed,
    connected,
    ended_process,
    ended_serve,
    first_line,
    kept_port,
    serve_is_there,
    start_proxy,
)
from agentcache.ray.places import own_settings
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.vault import NAMESPACE, vault_name
from agentcache.server.banner import facts_of, print_facts
from agentcache.settings import Settings
from agentcache.startup import Progress, shown

logger = logging.getLogger(__name__)

_LOOK_S = 0.5
_STATUS_S = 5.0
_RAY_SAYS = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_local_fs_capacity_threshold": "0.99",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
}
"""Unless the user says otherwise: every line of a replica is shown, nothing is told to others, what Serve has to say is in its
log files, a replica for which no GPU was reserved sees none, and a disk that is 95% full, on which Ray writes little here, is no
reason for a line every ten seconds; a proxy that died comes back within seconds instead of half a minute."""
_ENOUGH_S = 60.0
"""How long a cluster may have no room for a replica before that is an error; other tasks may be ending."""
_POOL_SHARE = 2
"""Pools of all replicas together take at most the memory divided by this, unless their size is given."""
_MOST_POOL = 4 * 2**30


def run_up(settings: Settings, cluster: ClusterSettings) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code.

    Raises:
        SettingsError: settings that cannot be served by a cluster, or an address that cannot be bound.
        AgentCacheError: the model cannot be loaded, or the cluster has no room.
    """
    checked_for_cluster(settings, cluster)
    for name, value in _RAY_SAYS.items():  # read when Ray is imported
        os.environ.setdefault(name, value)
    with_ray()
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    _tell_what_is_not_kept(settings)
    if cluster.ray_address is not None:
        with connected(settings, cluster), claimed(), _Stop() as stop:
            if serve_is_there():
                check_proxies(settings)
                _serve(settings, cluster, stop)
            else:
                with kept_port(settings) as port, ended_serve():
                    _serve(settings.model_copy(update={"port": port}), cluster, stop)
        return 0
    settings = _shared_machine(settings, cluster)
    with kept_port(settings) as port:
        settings = settings.model_copy(update={"port": port})
        _check_outside(settings, cluster)
        shown(lambda progress: _prepare_model(settings, progress), True)
        with connected(settings, cluster), _Stop() as stop:
            _serve(settings, cluster, stop)
    return 0


def _serve(settings: Settings, cluster: ClusterSettings, stop: _Stop) -> None:
    """On the cluster that this process is connected to."""
    application = build_app(settings, cluster, name=APP)
    try:
        start_proxy(settings)
        shown(lambda progress: _deploy(application, cluster, stop, progress), True)
        if not stop.asked:
            _banner(settings, cluster)
            failure = _watch(stop)
            if failure is not None:
                raise AgentCacheError(failure)
    finally:
        if ended_process() is None:
            _end(settings, cluster, stop)


# -- before Ray ---------------------------------------------------------------------------------------------------------


def _tell_what_is_not_kept(settings: Settings) -> None:
    """Ray's proxy has no such limits; that they are asked for must not stay unnoticed."""
    asked = [name for name in NOT_KEPT if getattr(settings, name) != Settings.model_fields[name].default]
    if asked:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        logger.warning("%s: connections belong to Ray's proxy here, which does not keep to it", flags)


def _shared_machine(settings: Settings, cluster: ClusterSettings) -> Settings:
    """``settings`` for replicas that share one machine: cores and memory are divided, unless they were given."""
    most = cluster.most_replicas
    changes: dict[str, Any] = {}
    if settings.threads is None and settings.device != "cuda":
        changes["threads"] = max(1, compute_threads() // most)
    if most > 1 and settings.num_pages is None and settings.kv_memory is None and settings.device != "cuda":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        changes["kv_memory"] = min(memory // _POOL_SHARE // most, _MOST_POOL)
    return settings.model_copy(update=changes)


def _check_outside(settings: Settings, cluster: ClusterSettings) -> None:
    """What the replicas of this machine will work with is opened once as they will; that takes no time, and Ray does.

    Raises:
        SettingsError: the store or an endpoint of events cannot be reached, and must be.
    """
    Outside.open(settings).close()
    for rank in range(1, cluster.least_replicas):
        mine = own_settings(settings, "", rank)
        if (mine.kv_events, mine.kv_events_replay) == (settings.kv_events, settings.kv_events_replay):
            break  # it is connected to, and answered
        if (events := open_events(mine)) is not None:
            events.close(0)


def _prepare_model(settings: Settings, progress: Progress | None) -> None:
    """Find, download or convert the model once, before all replicas try to.

    Raises:
        UnsupportedModelError
    """
    from agentcache.model.hub import resolve_model

    resolve_model(settings.model, settings.home, progress=progress)


# -- the application ----------------------------------------------------------------------------------------------------


def _deploy(application: Any, cluster: ClusterSettings, stop: _Stop, progress: Progress | None) -> None:
    """Returns when the first replicas serve, or ``stop`` is asked for.

    Raises:
        AgentCacheError: they cannot.
    """
    from ray import serve

    target = serve.RunTarget(target=application, name=APP, route_prefix="/", logging_config=QUIET)
    try:
        serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
    except Exception as error:
        raise AgentCacheError(f"the application could not be deployed: {cause_of(str(error))}") from error
    deadline = time.monotonic() + cluster.start_timeout_s
    without_room_since: float | None = None
    told = ""
    while not stop.wait(_LOOK_S):
        app = serve.status().applications.get(APP)
        if app is None:
            continue
        if app.status == "RUNNING":
            return
        states = {name: deployment.replica_states for name, deployment in app.deployments.items()}
        up = states.get(ENGINE, {}).get("RUNNING", 0)
        text = f"loading: {up} of {cluster.least_replicas} replicas are up"
        if text != told and progress is not None:
            progress(text)
            told = text
        if app.status in {"DEPLOY_FAILED", "UNHEALTHY"}:
            raise AgentCacheError(f"the replicas could not be started: {_cause(app)}")
        waiting = _without_room(app)
        without_room_since = (without_room_since or time.monotonic()) if waiting else None
        if without_room_since is not None and time.monotonic() - without_room_since > _ENOUGH_S:
            raise AgentCacheError(f"the cluster has no room for the replicas: {waiting}")
        if time.monotonic() > deadline:
            raise AgentCacheError(
                f"{up} of {cluster.least_replicas} replicas were up after --start-timeout-s {cluster.start_timeout_s:g}"
            )


def _without_room(app: Any) -> str | None:
    """What Ray says of replicas that it finds no place for."""
    for deployment in app.deployments.values():
        if deployment.replica_states.get("STARTING", 0) and "have not been scheduled" in (deployment.message or ""):
            return " ".join(str(deployment.message).split())
    return None


def _cause(app: Any) -> str:
    return cause_of(*(str(deployment.message or "") for deployment in app.deployments.values()), str(app.message or ""))


def _watch(stop: _Stop) -> str | None:
    """Waits until the end is asked for; returns why it came otherwise."""
    from ray import serve

    looked = time.monotonic()
    while not stop.wait(_LOOK_S):
        if (name := ended_process()) is not None:
            return f"Ray's {name} has ended, and nothing can be served without it"
        if time.monotonic() - looked < _STATUS_S:
            continue
        looked = time.monotonic()
        try:
            app = serve.status().applications.get(APP)
        except Exception as error:  # noqa: BLE001  whatever Ray fails with, it is gone
            return f"the Ray cluster is gone: {first_line(error)}"
        if app is None:
            return "the application was deleted by somebody else"
    return None


# -- the end ------------------------------------------------------------------------------------------------------------


def _end(settings: Settings, cluster: ClusterSettings, stop: _Stop) -> None:
    """Refuse what comes, let streams end, cut them when their time is over or the end is asked for once more."""
    import ray
    from ray import serve

    with suppress(Exception):  # there may be no ingress yet
        _drain(serve.get_deployment_handle(INGRESS, APP), cluster.drain_s(settings), stop)
    if stop.asked < 2:
        with suppress(Exception):
            serve.delete(APP)
    if cluster.ray_address is not None:  # what was started here ends with Ray
        with suppress(Exception):
            ray.kill(ray.get_actor(vault_name(APP), namespace=NAMESPACE))


def _drain(ingresses: Any, drain_s: float, stop: _Stop) -> None:
    began = time.monotonic()
    left = sum(ingresses.broadcast("close").results(timeout_s=10))
    if left:
        logger.warning(
            "%s being answered; Ctrl-C again cuts them", "1 request is" if left == 1 else f"{left} requests are"
        )
    while left and time.monotonic() - began < drain_s and stop.asked < 2:
        time.sleep(_LOOK_S)
        left = sum(ingresses.broadcast("close").results(timeout_s=10))
    if left:
        ingresses.broadcast("cut").results(timeout_s=10)
        time.sleep(_LOOK_S)


class _Stop:
    """Counts Ctrl-C and SIGTERM."""

    def __init__(self) -> None:
        self.asked = 0
        self._event = threading.Event()
        self._before: dict[int, Any] = {}

    def wait(self, seconds: float) -> bool:
        """Whether the end was asked for, at the latest after ``seconds``."""
        return self._event.wait(seconds)

    def _ask(self, *_: object) -> None:
        self.asked += 1
        self._event.set()

    def __enter__(self) -> _Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# -- words --------------------------------------------------------------------------------------------------------------


def _banner(settings: Settings, cluster: ClusterSettings) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{settings.port}"
    number = f"{cluster.least_replicas} to {cluster.most_replicas}" if cluster.scales else str(cluster.least_replicas)
    facts: dict[str, str] = {
        "model": settings.model,
        "address": address,
        "explorer": f"{address}/ui",
        "replicas": number,
        "sessions": "in the store" if settings.store and settings.store_sessions else "in the cluster's memory",
        "cluster": cluster.ray_address or "of this machine",
    }
    print_facts(facts | facts_of(settings))
