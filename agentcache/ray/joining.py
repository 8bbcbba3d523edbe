"""The Ray cluster that ``agentcache up`` serves on: one that it starts here, or one that is there.

A cluster that is joined stays as it was found.  Who serves the application there holds an actor while it lives, so that nobody
else replaces the application under it; what a starter left behind that was killed is replaced by the next one.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agentcache.errors import AgentCacheError, SettingsError
from agentcache.ray.app import cpus
from agentcache.ray.settings import ClusterSettings
from agentcache.ray.vault import NAMESPACE
from agentcache.settings import Settings

APP = "agentcache"
QUIET = {"log_level": "WARNING", "enable_access_log": False}
_REACH_S = 10.0


# -- the cluster --------------------------------------------------------------------------------------------------------


@contextmanager
def connected(settings: Settings, cluster: ClusterSettings) -> Iterator[None]:
    """Connected to Ray.

    Raises:
        AgentCacheError: it cannot be started or joined, or is too small.
    """
    import ray

    if ray.is_initialized():
        raise AgentCacheError("this process is connected to a Ray cluster already; agentcache up needs one of its own")
    address = cluster.ray_address
    if address is not None:
        _check_reachable(address)
    common = {"log_to_driver": settings.access_log != "off", "logging_level": logging.ERROR, "namespace": NAMESPACE}
    try:
        if address is None:
            needed = cpus(settings, cluster) * cluster.most_replicas
            with ended_by_us_alone():
                ray.init(
                    address="local",
                    num_cpus=max(1, math.ceil(needed)),
                    include_dashboard=False,
                    object_store_memory=cluster.object_store_memory,
                    _node_ip_address="127.0.0.1",
                    **common,
                )
        else:
            ray.init(address=address, **common)
    except Exception as error:
        what = "started" if address is None else f"joined at --ray-address {address}"
        raise AgentCacheError(f"Ray could not be {what}: {first_line(error)}") from error
    try:
        _check_room(settings, cluster, ray.cluster_resources())
        yield
    finally:
        _left()


@contextmanager
def ended_by_us_alone() -> Iterator[None]:
    """Processes that are started meanwhile never see SIGTERM, as Ray lets none of them see SIGINT.

    Who ends a service often tells all of its processes at once.  Streams could not end then: Ray would be gone before us.  At
    our own end Ray's processes are killed, and whether or not we come to that, they end with us.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended_process() -> str | None:
    """Which of Ray's own processes is gone that was started here, and without which nothing is served."""
    from ray._private import worker

    node = worker._global_node
    gone = {} if node is None else dict(node.dead_processes())
    return next((name for name in ("gcs_server", "raylet") if name in gone), None)


def _left() -> None:
    """Of a Ray that is half gone what is left is killed: it would be asked in vain for a minute, and then abort this process."""
    import psutil  # Ray brings it
    import ray
    from ray._private import worker

    if ended_process() is None:
        ray.shutdown()
        return
    started = psutil.Process().children(recursive=True)  # Ray's agents outlive a cluster that ends in this order
    worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    atexit.register(os._exit, 1)  # runs first, when the error is told: Ray's own ending never comes to its end


def _check_reachable(address: str) -> None:
    """Ray itself would go on trying for minutes.

    Raises:
        AgentCacheError: nobody answers at ``host:port``, or without a token; of other addresses nothing is known.
    """
    host, colon, port = address.rpartition(":")
    if "//" in host or not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise AgentCacheError(f"--ray-address {address}: {error.strerror or error}") from error
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray comes without types
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address)
    except AuthenticationError as error:
        mode = os.environ.get("RAY_AUTH_MODE", "not set")
        raise AgentCacheError(
            f"--ray-address {address}: the cluster asks for a token, and RAY_AUTH_MODE is {mode}: set RAY_AUTH_MODE=token, and "
            "have the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        ) from error
    except Exception as error:
        raise AgentCacheError(f"--ray-address {address}: no Ray cluster answers there: {first_line(error)}") from error


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


# -- the address --------------------------------------------------------------------------------------------------------


@contextmanager
def kept_port(settings: Settings) -> Iterator[int]:
    """The port, which nobody else gets before Ray's proxy has it: that binds it beside this socket.

    Raises:
        SettingsError: the address cannot be bound.
    """
    from ray.serve._private.proxy import SOCKET_REUSE_PORT_ENABLED

    from agentcache.server.serve import bind

    tried = bind(settings.host, settings.port)
    address = tried.getsockname()
    tried.close()
    with socket.socket(tried.family, socket.SOCK_STREAM) as keeper:
        if SOCKET_REUSE_PORT_ENABLED and hasattr(socket, "SO_REUSEPORT"):
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                keeper.bind(address)
            except OSError as error:
                raise SettingsError(f"--port {address[1]}: {error.strerror or error}") from error
        yield int(address[1])


def serve_is_there() -> bool:
    """Whether Ray Serve runs on the cluster, with proxies of its own."""
    from ray.serve.context import _get_global_client

    return _get_global_client(raise_if_no_controller_running=False) is not None


def check_proxies(settings: Settings) -> None:
    """
    Raises:
        SettingsError: the proxies that are there answer elsewhere than at ``--host`` and ``--port``.
    """
    from ray.serve.context import _get_global_client

    options: Any = _get_global_client().http_config
    if (options.host, options.port) != (settings.host, settings.port):
        raise SettingsError(
            f"--host {settings.host} --port {settings.port}: Ray Serve runs on this cluster already, and answers at --host "
            f"{options.host} --port {options.port}; give these, or end it with `serve shutdown`"
        )


def start_proxy(settings: Settings) -> None:
    """
    Raises:
        AgentCacheError: it cannot be.
    """
    from ray import serve

    from agentcache.server.gate.connections import KEEP_ALIVE_S

    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": settings.host, "port": settings.port, "keep_alive_timeout_s": KEEP_ALIVE_S},
            logging_config=QUIET,
        )
    except Exception as error:
        raise AgentCacheError(
            f"Ray's proxy could not be started at --host {settings.host} --port {settings.port}: {cause_of(str(error))}"
        ) from error


@contextmanager
def ended_serve() -> Iterator[None]:
    """Ray Serve ends as well at the end, unless somebody deployed something else meanwhile."""
    from ray import serve

    try:
        yield
    finally:
        with suppress(Exception):
            if not serve.status().applications:
                serve.shutdown()


# -- who serves there ---------------------------------------------------------------------------------------------------


class Claim:
    """An actor of whoever serves the application; it ends with its owner, however that ends."""

    def holds(self) -> bool:
        return True


@contextmanager
def claimed() -> Iterator[None]:
    """The application's name belongs to this process; what was left under it is gone.

    Raises:
        AgentCacheError: somebody else has it.
    """
    import ray
    from ray import serve

    there = APP in serve.status().applications
    try:
        claim = ray.remote(Claim).options(name=f"{APP}-up", namespace=NAMESPACE, num_cpus=0).remote()
        ray.get(claim.holds.remote(), timeout=60)
    except ValueError as error:
        raise AgentCacheError(
            f"another `agentcache up` serves on this cluster; there is one application {APP} on a cluster"
        ) from error
    try:
        if there:
            logging.getLogger(__name__).warning("what an earlier `agentcache up` left on this cluster is replaced")
            serve.delete(APP)
            if not serve.status().applications:  # it was started for that one alone, perhaps for another address
                serve.shutdown()
        yield
    finally:
        with suppress(Exception):
            ray.kill(claim)


# -- words --------------------------------------------------------------------------------------------------------------


def cause_of(*messages: str) -> str:
    """What went wrong, by the last line that names an error; without a traceback."""
    for message in messages:
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        errors = [line for line in lines if "Error: " in line and not line.startswith("ray.exceptions.")]
        if errors:
            return errors[-1].partition("Error: ")[2]
    return " ".join(messages[-1].split()) or "Ray does not say why"


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
