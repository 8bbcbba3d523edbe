"""Calls and attributes whose value is another one the next time, the next day or on the next machine."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from agentcache.lint.python.module import Module, keyword_of

Pace = Literal["instant", "turn", "day", "state", "machine", "order"]
"""How often the value changes: at each call, in each turn of a loop, once a day (or an hour), now and then, from machine to
machine, or only in the order of its parts from process to process."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where something that varies comes from.

    Attributes:
        code: of the rule that it breaks when it gets into a prompt.
        thing: in words, such as ``the clock``.
        node: the call or attribute.
        wrap: what ``sorted(…)`` around it would mend; ``None`` where nothing simple does.
        sortable: its parts are known to be strings or paths, so that sorting cannot fail.
    """

    code: str
    thing: str
    pace: Pace
    node: ast.expr
    wrap: ast.expr | None = None
    sortable: bool = False


_Row = tuple[str, str, Pace]
_CLOCK: _Row = ("AC101", "the clock", "instant")
_DAY: _Row = ("AC101", "the date", "day")
_ID: _Row = ("AC102", "a fresh id", "instant")
_RANDOM: _Row = ("AC103", "a random choice", "instant")
_FOLDER: _Row = ("AC102", "a temporary path", "instant")
_PROCESS: _Row = ("AC102", "a number of this process", "instant")
_MACHINE: _Row = ("AC104", "a fact about the machine", "machine")
_STATE: _Row = ("AC104", "the working directory", "state")
_OUTPUT: _Row = ("AC104", "the output of a command", "state")

_CALLS: dict[str, _Row] = {
    **dict.fromkeys(
        (
            *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
            *(
                f"time.{name}"
                for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "process_time")
            ),
            *("pendulum.now", "arrow.now", "arrow.utcnow", "pandas.Timestamp.now", "django.utils.timezone.now"),
            *("email.utils.formatdate", "whenever.Instant.now", "whenever.ZonedDateTime.now"),
        ),
        _CLOCK,
    ),
    **dict.fromkeys(("datetime.date.today", "pendulum.today", "django.utils.timezone.localdate"), _DAY),
    **dict.fromkeys(
        (
            *("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "secrets.token_hex", "secrets.token_urlsafe"),
            *("secrets.token_bytes", "secrets.randbits", "secrets.randbelow", "os.urandom", "random.getrandbits"),
            *(
                "random.randint",
                "random.randrange",
                "random.randbytes",
                "nanoid.generate",
                "shortuuid.uuid",
                "ulid.new",
            ),
        ),
        _ID,
    ),
    **dict.fromkeys(
        (
            *("random.choice", "random.choices", "random.sample", "random.random", "random.uniform", "secrets.choice"),
            *("random.gauss", "random.betavariate"),
        ),
        _RANDOM,
    ),
    **dict.fromkeys(
        (
            *("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.NamedTemporaryFile"),
            "tempfile.TemporaryDirectory",
        ),
        _FOLDER,
    ),
    **dict.fromkeys(("os.getpid", "os.getppid", "threading.get_ident", "id", "hash"), _PROCESS),
    **dict.fromkeys(("os.getcwd", "pathlib.Path.cwd"), _STATE),
    **dict.fromkeys(
        (
            *(f"platform.{name}" for name in ("platform", "system", "release", "version", "node", "machine", "uname")),
            *("platform.processor", "platform.python_version", "platform.architecture", "platform.mac_ver"),
            *(
                "socket.gethostname",
                "socket.getfqdn",
                "getpass.getuser",
                "os.getlogin",
                "os.uname",
                "pathlib.Path.home",
            ),
            "tempfile.gettempdir",
        ),
        _MACHINE,
    ),
    **dict.fromkeys(
        (
            *("subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput", "subprocess.run"),
            "os.popen",
        ),
        _OUTPUT,
    ),
}
_WITHOUT_TIME = {"time.strftime": 1, "time.ctime": 0, "time.asctime": 0, "time.localtime": 0, "time.gmtime": 0}
"""Calls that read the clock when they are given no more arguments than this."""
_ATTRIBUTES: dict[str, _Row] = {
    **dict.fromkeys(("sys.version", "sys.platform", "sys.executable", "sys.version_info", "os.name"), _MACHINE),
    "os.environ": ("AC104", "the environment", "machine"),
}
_PERSONAL = {
    "USER",
    "USERNAME",
    "LOGNAME",
    "HOME",
    "PWD",
    "HOSTNAME",
    "HOST",
    "TMPDIR",
    "TEMP",
    "SHELL",
    "PATH",
    "TERM",
    *("COMPUTERNAME", "USERPROFILE", "USERDOMAIN", "OLDPWD", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("BRANCH", "GIT_BRANCH", "BRANCH_NAME", "GIT_COMMIT", "COMMIT_SHA", "GITHUB_REF", "GITHUB_REF_NAME", "GITHUB_SHA"),
    *("GITHUB_HEAD_REF", "GITHUB_RUN_ID", "CI_COMMIT_SHA", "CI_COMMIT_BRANCH", "CI_COMMIT_REF_NAME", "BUILD_NUMBER"),
}
"""Variables of the environment that tell of the machine, its user or the state of a checkout; others are settings of the
program."""


TELLING = frozenset(
    (
        *("hex", "int", "stdout", "stderr", "name", "parent", "stem", "urn", "node"),
        *("year", "month", "day", "hour", "time", "release"),
        *("nodename", "sysname", "machine", "system", "processor"),
    )
)
"""Attributes of what a source gives that vary as it does."""


def source_of(node: ast.expr, module: Module) -> Source | None:
    """What ``node`` itself reads that varies; what its arguments read is not looked at."""
    if isinstance(node, ast.Call):
        return _of_call(node, module)
    name = module.imported(node) if isinstance(node, ast.Attribute | ast.Name) else None
    if name in _ATTRIBUTES and (isinstance(node, ast.Attribute) or name != "os.name"):
        return Source(*_ATTRIBUTES[name], node)
    if isinstance(node, ast.Subscript) and module.imported(node.value) == "os.environ":
        return _variable(node, node.slice)
    return None


def _of_call(node: ast.Call, module: Module) -> Source | None:
    name = module.imported(node.func)
    if name is None:
        return None
    if name in ("os.getenv", "os.environ.get"):
        return _variable(node, node.args[0]) if node.args else None
    if name in ("os.path.expanduser",) and node.args:
        text = node.args[0]
        known = isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.startswith("~")
        return Source(*_MACHINE, node) if known else None
    if name in _WITHOUT_TIME:
        if len(node.args) > _WITHOUT_TIME[name]:
            return None
        return narrowed(Source(*_CLOCK, node), node)
    if name.startswith("random.") and is_seeded(module):
        return None
    if name in ("id", "hash") and len(node.args) != 1:
        return None
    if name in ("random.Random", "random.SystemRandom"):
        return None
    row = _CALLS.get(name)
    if name == "subprocess.run" and keyword_of(node, "capture_output") is None and keyword_of(node, "stdout") is None:
        return None
    return None if row is None else Source(*row, node)


def is_seeded(module: Module) -> bool:
    """It calls ``random.seed``."""
    return any(module.imported(call.func) == "random.seed" for call, _ in module.callers.get("seed", ()))


def _variable(node: ast.expr, name: ast.expr) -> Source | None:
    if isinstance(name, ast.Constant) and name.value in _PERSONAL:
        return Source("AC104", f"the environment variable {name.value}", "machine", node)
    return None


_TO_THE_SECOND = re.compile(r"%[-#]?[HIMSfscXTpr]")
_TO_THE_DAY = re.compile(r"%[-#]?[dxDFAajuweUWV]")
_MINUTE = re.compile(r"%[-#]?[MSfscXTr]")


def narrowed(source: Source, step: ast.expr, pattern: str | None = None) -> Source | None:
    """What is left of a time after a step such as ``.date()``, ``.strftime("%Y")`` or ``[:10]``; ``None``: a month or less.

    Args:
        pattern: of ``strftime`` or of a replacement field, where it is known.
    """
    if source.code != "AC101":
        return source
    if pattern is None and isinstance(step, ast.Call):
        found = [arg.value for arg in step.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        pattern = found[0] if found and "%" in found[0] else None
    if pattern is not None:
        if _MINUTE.search(pattern):
            return source
        if _TO_THE_SECOND.search(pattern) or _TO_THE_DAY.search(pattern):
            return _daily(source)
        return None if "%" in pattern else source
    if isinstance(step, ast.Attribute):
        return (
            None
            if step.attr in ("year", "month", "tzinfo")
            else _daily(source)
            if step.attr in ("day", "hour")
            else source
        )
    if isinstance(step, ast.Subscript):
        return _sliced(source, step.slice)
    if isinstance(step, ast.Call) and isinstance(step.func, ast.Attribute):
        if step.func.attr in ("date", "weekday", "isoweekday", "isocalendar", "toordinal"):
            return _daily(source)
        if step.func.attr == "replace" and any(keyword.arg in ("minute", "hour") for keyword in step.keywords):
            return _daily(source)
        if step.func.attr == "tzname":
            return None
    return source


def _sliced(source: Source, part: ast.expr) -> Source | None:
    """``[:10]`` of an ISO time is its day, ``[:4]`` its year."""
    if not isinstance(part, ast.Slice) or part.lower is not None or not isinstance(part.upper, ast.Constant):
        return source
    length = part.upper.value
    if not isinstance(length, int):
        return source
    return None if 0 < length < 8 else _daily(source) if length <= 13 else source


def _daily(source: Source) -> Source:
    return Source("AC101", "the date", "day", source.node)
