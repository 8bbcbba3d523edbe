"""The command line.  Exit codes: 0 done, 1 something failed, 2 a bad command line or bad settings."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.markup import escape

from agentcache import __version__
from agentcache.errors import AgentCacheError, SettingsError
from agentcache.ray.settings import CLUSTER_SIZES, ClusterSettings, load_cluster_settings
from agentcache.settings import REPEATED, SIZES, Settings, default_home, load_settings, size_text
from agentcache.startup import calm_openmp, serving_packages, shown

_GROUPS: dict[str, tuple[str, ...]] = {
    "model": ("model", "model_names", "load_format", "device", "dtype", "weights", "weights_policy", "threads", "home"),
    "pages": ("page_size", "num_pages", "kv_memory", "max_model_len", "prefix_cache", "namespace_pages"),
    "steps": (
        "prefill_chunk",
        "max_running",
        "max_waiting",
        "schedule",
        "max_overtakes",
        "look_ahead",
        "preempt",
        "batch_invariant",
    ),
    "tiers": ("host_pages", "disk_dir", "disk_size", "public_prefix"),
    "neighbours": (
        "store",
        "store_optional",
        "store_sessions",
        "store_timeout_s",
        "replica",
        "kv_events",
        "kv_events_topic",
        "kv_events_format",
        "kv_events_replay",
    ),
    "http": (
        "host",
        "port",
        "api_keys",
        "admin_keys",
        "allow_keyless",
        "cors_origins",
        "max_body",
        "max_connections",
        "head_timeout_s",
        "body_timeout_s",
        "send_timeout_s",
        "keep_alive_s",
        "tool_parser",
        "allow_special_tokens",
        "enable_test_hooks",
    ),
    "watching": ("access_log", "otel", "trace"),
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["lint"]:  # the linter has a command line of its own, and needs nothing of the server's
        from agentcache.lint.cli import main as lint

        return lint(argv[1:])
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse: 2 for a bad command line, 0 after --help and --version
        return stop.code if isinstance(stop.code, int) else 2
    errors = Console(stderr=True, soft_wrap=True)
    try:
        return int(options.run(options))
    except SettingsError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        return 2
    except AgentCacheError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache",
        description="An agent-oriented prefix-caching runtime for serving language models.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"agentcache {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_up(commands)
    chat = commands.add_parser("chat", help="talk to a running server in the terminal", allow_abbrev=False)
    chat.add_argument("--base-url", default="http://127.0.0.1:8100", help="the server (default: %(default)s)")
    chat.add_argument("--api-key", help="key of the server")
    chat.add_argument("--system", help="system prompt")
    chat.add_argument("--max-tokens", type=int, default=512, help="longest reply (default: %(default)s)")
    chat.set_defaults(run=_chat)
    models = commands.add_parser("models", help="list what --model can name on this machine", allow_abbrev=False)
    models.add_argument("--home", type=Path, help="folder of converted models")
    models.set_defaults(run=_models)
    commands.add_parser("lint", help="find what breaks the shared prefix (agentcache lint --help)", add_help=False)
    return parser


# -- serve --------------------------------------------------------------------------------------------------------


def _add_serve(commands: Any) -> None:
    """One flag a settings field: the settings object is where names, types and help texts are written down."""
    serve = commands.add_parser("serve", help="serve a model over HTTP", allow_abbrev=False)
    _add_settings(serve)
    serve.set_defaults(run=_serve)


def _add_settings(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    parser.add_argument("--config", type=Path, help="settings file (default: agentcache.toml when there is one)")
    for title, names in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name in names:
            if name not in without:
                _add_flag(group, name, Settings.model_fields[name])


def _add_flag(group: Any, name: str, field: FieldInfo) -> None:
    flag = "--" + name.replace("_", "-")
    if name in REPEATED:
        metavar = {"cors_origins": "ORIGIN", "model_names": "NAME"}.get(name, "KEY")
        description = f"{field.description}; repeatable"
        group.add_argument(flag.removesuffix("s"), dest=name, action="append", metavar=metavar, help=description)
        return
    if name == "otel":
        group.add_argument(flag, nargs="?", const="default", metavar="ENDPOINT", help=field.description)
        return
    if field.annotation is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=field.description)
        return
    group.add_argument(flag, choices=_choices(field.annotation), metavar=_metavar(name, field), help=_help(name, field))


def _help(name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is None:
        return str(field.description)
    sized = name in SIZES or name in CLUSTER_SIZES
    return f"{field.description} (default: {size_text(default) if sized else default})"


def _choices(annotation: Any) -> tuple[str, ...] | None:
    return get_args(annotation) if get_origin(annotation) is Literal else None


def _metavar(name: str, field: FieldInfo) -> str | None:
    if _choices(field.annotation):
        return None
    if name in SIZES or name in CLUSTER_SIZES:
        return "SIZE"
    kinds = {int: "N", float: "SECONDS" if name.endswith("_s") else "N", Path: "PATH"}
    annotation = field.annotation
    if get_origin(annotation) in {Union, types.UnionType}:
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    return kinds.get(annotation, name.upper())  # type: ignore[arg-type]


def _settings(options: argparse.Namespace) -> Settings:
    known = {name for names in _GROUPS.values() for name in names}
    overrides = {name: value for name, value in vars(options).items() if name in known}
    for name in REPEATED:
        if overrides[name] is not None:
            overrides[name] = tuple(overrides[name])
    return load_settings(overrides, options.config)


def _serve(options: argparse.Namespace) -> int:
    settings = _settings(options)
    # Each text is tokenised on the thread of its own request, so that a short one never queues behind two long ones.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with calm_openmp():
        with _made_to_stay():
            with serving_packages("serving"):
                from agentcache.engine.build import build_engine
                from agentcache.server.app import run_server
                from agentcache.server.serve import bind
            listener = bind(settings.host, settings.port)  # first: a model can take minutes to load
            try:
                what = f"loading {settings.model}"
                engine = shown(lambda progress: build_engine(settings, progress=progress), True, what)
            except BaseException:
                listener.close()
                raise
        return run_server(engine, settings, listener)


@contextmanager
def _made_to_stay() -> Iterator[None]:
    """For what is made at start and lives as long as the process: the garbage collector never looks at it.

    Otherwise each full collection walks all of torch, which takes 0.2 s on a slow core, in the middle of everybody's reply.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


# -- up -----------------------------------------------------------------------------------------------------------


def _add_up(commands: Any) -> None:
    """What ``serve`` can be told, and what there is to say of several."""
    up = commands.add_parser("up", help="serve a model on several replicas, on Ray", allow_abbrev=False)
    group = up.add_argument_group("replicas")
    for name, field in ClusterSettings.model_fields.items():
        _add_flag(group, name, field)
    up.add_argument("--replica", help=argparse.SUPPRESS)  # is refused in better words than argparse has
    _add_settings(up, without=("replica",))
    up.set_defaults(run=_up)


def _up(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in ClusterSettings.model_fields}
    settings, cluster = _settings(options), load_cluster_settings(given, options.config)
    with serving_packages("serving"):
        from agentcache.ray.up import run_up
    return run_up(settings, cluster)


# -- chat and models ----------------------------------------------------------------------------------------------


def _chat(options: argparse.Namespace) -> int:
    from agentcache.terminal import chat

    return chat(options.base_url, options.api_key, options.system, options.max_tokens)


def _models(options: argparse.Namespace) -> int:
    from agentcache.terminal import list_models

    return list_models(options.home or default_home())


if __name__ == "__main__":
    sys.exit(main())
