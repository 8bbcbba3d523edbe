"""The HTTP face: routes, errors and keys put together."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from agentcache import __version__
from agentcache.server.admin import cache_router, debug_router, flush_router, models_router, open_router
from agentcache.server.anthropic.errors import AnthropicErrors
from agentcache.server.anthropic.routes import messages_router
from agentcache.server.banner import print_banner
from agentcache.server.context import Context
from agentcache.server.errors import install_error_handlers
from agentcache.server.gate.auth import Keys, require_key, require_operator
from agentcache.server.gate.connections import allow_files
from agentcache.server.gate.origins import guard_origins
from agentcache.server.openai.chat import chat_router
from agentcache.server.openai.completions import completions_router
from agentcache.server.openapi import describe_bodies
from agentcache.server.responses.routes import responses_router
from agentcache.server.serve import Server, address_of, answering, bind
from agentcache.server.sessions.desk import SessionDesk
from agentcache.server.sessions.routes import sessions_router
from agentcache.server.text import text_router
from agentcache.server.ui.routes import ui_data_router, ui_router
from agentcache.server.watch.access_log import AccessLog, access_log_on_stderr
from agentcache.server.watch.exchanges import ExchangeWatch
from agentcache.server.watch.findings_routes import findings_router
from agentcache.server.watch.metrics import metrics_router
from agentcache.server.watch.request_ids import RequestIds
from agentcache.server.watch.trace_file import SentBodies, TraceFile
from agentcache.settings import Settings

if TYPE_CHECKING:
    from agentcache.engine.loop import AsyncEngine
    from agentcache.server.watch.tracing import Traces
    from agentcache.sessions.vault import SessionVault

logger = logging.getLogger(__name__)

STOP_S = 3
"""How long the engine gets to end its step."""


class _App(FastAPI):
    """FastAPI whose every answer is watched from outside, those to its own failures too."""

    def __init__(self, context: Context, **options: Any) -> None:
        super().__init__(**options)
        self._context = context

    def build_middleware_stack(self) -> ASGIApp:
        watched = ExchangeWatch(super().build_middleware_stack(), self._context.exchanges)
        return RequestIds(watched, self._context.settings.replica)


def run_server(engine: AsyncEngine, settings: Settings, bound: socket.socket | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code once everything is stopped.

    Args:
        bound: a socket that holds the address already; closed at the end.

    Raises:
        SettingsError: the address cannot be bound.
    """
    allow_files(settings.max_connections)
    listener = answering(bound or bind(settings.host, settings.port))
    try:
        server = Server(create_app(engine, settings), settings)
        server.on_listening = lambda: print_banner(engine, settings, address_of(listener))
        with access_log_on_stderr() if settings.access_log != "off" else nullcontext():
            server.run(sockets=[listener])
    finally:
        listener.close()
    return 0 if server.started else 1


async def _stop(engine: AsyncEngine) -> None:
    try:
        await asyncio.wait_for(engine.stop(), STOP_S)
    except asyncio.TimeoutError:
        logger.warning("the engine did not stop within %d s; leaving it behind", STOP_S)


def _traces(context: Context) -> Traces | None:
    if context.settings.otel is None:
        return None
    from agentcache.server.watch.tracing import Traces  # its packages are an extra

    traces = Traces(context.settings.otel)
    context.exchanges.subscribe(traces.note)
    return traces


def _vault_of(engine: AsyncEngine, settings: Settings) -> SessionVault | None:
    store = engine.page_store if settings.store_sessions else None
    if store is None:
        return None
    from agentcache.store.vault import StoreVault

    return StoreVault(store, settings.store_timeout_s)


def _trace_file(engine: AsyncEngine, settings: Settings, desk: SessionDesk) -> TraceFile | None:
    """
    Raises:
        SettingsError: it cannot be written.
    """
    if settings.trace is None:
        return None
    keys = dict.fromkeys((*settings.keys(), *settings.operator_keys()))
    return TraceFile(settings.trace, engine.tokenizer, [desk.home(key, None).owner for key in keys])


def create_app(engine: AsyncEngine, settings: Settings, vault: SessionVault | None = None) -> FastAPI:
    """An app that serves ``engine``: starts it with its own start-up and stops it at its end.

    ``app.state.lifecycle.close()`` ends what runs and refuses what comes; ``run_server`` calls it on Ctrl-C and SIGTERM.

    Args:
        vault: where sessions are kept besides; by default in the engine's page store, if it has one and ``store_sessions``
            is on.  Closed at the app's end.

    Raises:
        SettingsError: ``--trace`` names what cannot be written.
    """
    desk = SessionDesk(engine, settings, vault or _vault_of(engine, settings))
    trace = _trace_file(engine, settings, desk)
    context = Context(engine, settings, desk, trace=trace)
    if settings.access_log != "off":
        context.exchanges.subscribe(AccessLog(settings.access_log).note)
    traces = _traces(context)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        chores = [asyncio.create_task(chore()) for chore in (desk.sweep_for_ever, desk.tend_for_ever)]
        try:
            yield
        finally:
            for chore in chores:
                chore.cancel()
            context.lifecycle.close()
            closing = [watcher.close() for watcher in (traces, trace) if watcher is not None]
            try:
                await desk.keeper.close()  # before the engine, which closes the store
            finally:
                await asyncio.gather(_stop(engine), *closing)

    app = _App(
        context,
        title="agentcache",
        version=__version__,
        description="Serves a language model to agents; every answer says how much of its prompt was cached.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # those pages run scripts from elsewhere, which could then use the server in its own name
        redoc_url=None,
    )
    app.state.lifecycle = context.lifecycle
    app.state.exchanges = context.exchanges
    install_error_handlers(app)
    describe_bodies(app, keyed=settings.keyed)
    app.include_router(open_router(context))
    app.include_router(ui_router(context))
    keyed = [
        chat_router,
        completions_router,
        responses_router,
        messages_router,
        sessions_router,
        text_router,
        models_router,
        cache_router,
        ui_data_router,
        findings_router,
    ]
    operators = [metrics_router, flush_router, *([debug_router] if settings.enable_test_hooks else [])]
    keys = Keys(settings)
    any_key, an_operators = Depends(require_key(keys)), Depends(require_operator(keys))
    for router in keyed:
        app.include_router(router(context), dependencies=[any_key])
    for router in operators:
        app.include_router(router(context), dependencies=[any_key, an_operators])
    guard_origins(app, settings)
    app.add_middleware(AnthropicErrors)
    if trace is not None:
        app.add_middleware(SentBodies)
    return app
