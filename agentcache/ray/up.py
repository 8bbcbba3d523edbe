"""``agentcache up``: replicas on this machine, or on a cluster that is joined, until Ctrl-C.

::

    check settings, port, model ─► Ray: start one here, or join ─► Serve: proxy on host:port ─► replicas load ─► banner
                                                                                                       │ Ctrl-C, SIGTERM
    what was started here ends ◄── application deleted ◄── streams end, or are cut after drain_timeout_s ◄┘ (again: cut now)
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console

from agentcache import __version__
from agentcache.engine.cores import compute_threads
from agentcache.errors import AgentCacheError
from agentcache.ray.app import ENGINE, INGRESS, build_app, checked_for_cluster, cpus, with_ray
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.vault import NAMESPACE
from agentcache.settings import Settings
from agentcache.startup import Progress, shown

logger = logging.getLogger(__name__)

APP = "agentcache"
_LOOK_S = 0.5
_KEEP_ALIVE_S = 75
"""Agents think between turns; a connection that closes under them costs a retry."""
_QUIET = {"log_level": "WARNING", "enable_access_log": False}
_RAY_SAYS = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
}
"""Unless the user says otherwise: every line of a replica is shown, nothing is told to others, what Serve has to say is in its
log files, and a replica for which no GPU was reserved sees none."""
_ENOUGH_S = 60.0
"""How long a cluster may have no room for a replica before that is an error; other tasks may be ending."""
_REACH_S = 10.0
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
    logging.getLogger("ray").setLevel(logging.ERROR)
    here = cluster.ray_address is None
    port = _free_port(settings)
    settings = settings.model_copy(update={"port": port})
    if here:
        settings = _shared_machine(settings, cluster)
        shown(lambda progress: _prepare_model(settings, progress), True)
    application = build_app(settings, cluster, name=APP)
    with _ray(settings, cluster), _Stop() as stop:
        try:
            _start_proxy(settings)
            shown(lambda progress: _deploy(application, cluster, stop, progress), True)
            if not stop.asked:
                _banner(settings, cluster)
                failure = _watch(stop)
                if failure is not None:
                    raise AgentCacheError(failure)
        finally:
            _end(settings, cluster, stop, here=here)
    return 0


# -- before Ray ---------------------------------------------------------------------------------------------------------


def _free_port(settings: Settings) -> int:
    """
    Raises:
        SettingsError: the address cannot be bound.
    """
    from agentcache.server.serve import bind

    listener = bind(settings.host, settings.port)
    try:
        return int(listener.getsockname()[1])
    finally:
        listener.close()


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


def _prepare_model(settings: Settings, progress: Progress | None) -> None:
    """Find, download or convert the model once, before all replicas try to.

    Raises:
        UnsupportedModelError
    """
    from agentcache.model.hub import resolve_model

    resolve_model(settings.model, settings.home, progress=progress)


# -- Ray ----------------------------------------------------------------------------------------------------------------


@contextmanager
def _ray(settings: Settings, cluster: ClusterSettings) -> Iterator[None]:
    """
    Raises:
        AgentCacheError: it cannot be started or joined, or is too small.
    """
    import ray

    if ray.is_initialized():
        raise AgentCacheError("this process is connected to a Ray cluster already; agentcache up needs one of its own")
    if cluster.ray_address is not None:
        _check_reachable(cluster.ray_address)
    common = {"log_to_driver": settings.access_log != "off", "logging_level": logging.ERROR, "namespace": NAMESPACE}
    try:
        if cluster.ray_address is None:
            needed = cpus(settings, cluster) * cluster.most_replicas
            ray.init(
                address="local",
                num_cpus=max(1, math.ceil(needed)),
                include_dashboard=False,
                object_store_memory=cluster.object_store_memory,
                _node_ip_address="127.0.0.1",
                **common,
            )
        else:
            ray.init(address=cluster.ray_address, **common)
    except Exception as error:
        what = "started" if cluster.ray_address is None else f"joined at --ray-address {cluster.ray_address}"
        raise AgentCacheError(f"Ray could not be {what}: {_first_line(error)}") from error
    try:
        _check_room(settings, cluster, ray.cluster_resources())
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself would go on trying for minutes.

    Raises:
        AgentCacheError: nobody answers at ``host:port``; of other addresses nothing is known.
    """
    host, colon, port = address.rpartition(":")
    if "//" in host or not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise AgentCacheError(f"--ray-address {address}: {error.strerror or error}") from error


def _check_room(settings: Settings, cluster: ClusterSettings, resources: dict[str, float]) -> None:
    """
    Raises:
        AgentCacheError: the whole cluster could not hold the replicas, so that Ray would wait for ever.
    """
    wanted = {"CPU": cpus(settings, cluster), "GPU": cluster.gpus_per_replica}
    count = cluster.least_replicas
    for kind, each in wanted.items():
        there = resources.get(kind, 0.0)
        if each * count > there:
            flag = "--cpus-per-replica" if kind == "CPU" else "--gpus-per-replica"
            raise AgentCacheError(
                f"{count} replicas of {each:g} {kind}s each ({flag}) need {each * count:g}, and the cluster has {there:g}"
            )


def _start_proxy(settings: Settings) -> None:
    from ray import serve

    serve.start(
        proxy_location="HeadOnly",
        http_options={"host": settings.host, "port": settings.port, "keep_alive_timeout_s": _KEEP_ALIVE_S},
        logging_config=_QUIET,
    )


def _deploy(application: Any, cluster: ClusterSettings, stop: _Stop, progress: Progress | None) -> None:
    """Returns when the first replicas serve, or ``stop`` is asked for.

    Raises:
        AgentCacheError: they cannot.
    """
    from ray import serve

    target = serve.RunTarget(target=application, name=APP, route_prefix="/", logging_config=_QUIET)
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
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
    """The last line of what went wrong, without a traceback."""
    messages = [deployment.message or "" for deployment in app.deployments.values()] + [app.message or ""]
    for message in messages:
        lines = [line.strip() for line in str(message).splitlines() if line.strip()]
        errors = [line for line in lines if "Error: " in line and not line.startswith("ray.exceptions.")]
        if errors:
            return errors[-1].partition("Error: ")[2]
    return " ".join(str(messages[-1]).split()) or "Ray does not say why"


def _watch(stop: _Stop) -> str | None:
    """Waits until the end is asked for; returns why it came otherwise."""
    from ray import serve

    while not stop.wait(5.0):
        try:
            app = serve.status().applications.get(APP)
        except Exception as error:  # noqa: BLE001  whatever Ray fails with, it is gone
            return f"the Ray cluster is gone: {_first_line(error)}"
        if app is None:
            return "the application was deleted by somebody else"
    return None


# -- the end ------------------------------------------------------------------------------------------------------------


def _end(settings: Settings, cluster: ClusterSettings, stop: _Stop, *, here: bool) -> None:
    """Refuse what comes, let streams end, cut them when their time is over or the end is asked for once more."""
    import ray
    from ray import serve

    with suppress(Exception):  # there may be no ingress yet
        _drain(serve.get_deployment_handle(INGRESS, APP), cluster.drain_s(settings), stop)
    if stop.asked < 2:
        with suppress(Exception):
            serve.delete(APP)
    if not here:  # what was started here ends with Ray
        with suppress(Exception):
            ray.kill(ray.get_actor(f"{APP}-sessions", namespace=NAMESPACE))


def _drain(ingresses: Any, drain_s: float, stop: _Stop) -> None:
    began = time.monotonic()
    left = sum(ingresses.broadcast("close").results(timeout_s=10))
    if left:
        logger.warning("%d requests are being answered; Ctrl-C again cuts them", left)
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
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]agentcache[/bold] {__version__}")
    for name, fact in facts.items():
        console.print(f"  [cyan]{name:<8}[/cyan]", end=" ")
        console.print(fact, markup=False)
    console.print("  [dim]Ctrl-C stops it[/dim]")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
