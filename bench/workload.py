"""The conversations of a coding-agent workload: what every agent is told, turn by turn.  Pure: same spec, same text.

::

    agent 0   [ system ............ ][ task + source 0 ][ reply ][ source 1 ][ reply ] ...
    agent 1   [ the same, shared .. ][ task + source 0'][ reply ][ source 1'][ reply ] ...
              |<- shared_tokens --->|<- new_tokens --->|<- output_tokens

Replies are the model's own, so only the parts between them are made here.  The tool results are source text of
Python's standard library, cut at line borders: it is real code, every machine has it, and it does not change when this
repository does (only with the Python version).  ``Workload.digest`` tells whether two runs had the same text.
"""

from __future__ import annotations

import hashlib
import json
import random
import sysconfig
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import dropwhile, islice
from pathlib import Path

TokenCounter = Callable[[str], int]
"""Tokens of a piece of text, without chat markers."""

Message = dict[str, str]

# Chat markers around a message ("<|im_start|>user\n", "<|im_end|>\n", ...) in ChatML, which the default model uses.
_SYSTEM_MARKERS = 5
_TURN_MARKERS = 10

_CHARACTERS_PER_TOKEN = 3.6
"""Source text and English in SmolLM2's vocabulary; measured on the text made here."""

_MODULES = (
    "argparse", "ast", "bisect", "calendar", "cmd", "codeop", "configparser", "contextlib", "copy", "csv",
    "dataclasses", "difflib", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib", "functools", "getopt",
    "glob", "graphlib", "gzip", "heapq", "hmac", "imaplib", "inspect", "linecache", "mimetypes", "netrc",
    "optparse", "pdb", "pickletools", "platform", "poplib", "posixpath", "pprint", "profile", "queue", "random",
    "reprlib", "rlcompleter", "sched", "selectors", "shelve", "shlex", "shutil", "smtplib", "socketserver",
    "statistics", "string", "subprocess", "tabnanny", "tarfile", "tempfile", "textwrap", "timeit", "tokenize",
    "trace", "turtle", "typing", "uuid", "warnings", "weakref", "zipfile",
)  # fmt: skip

_TASKS = (
    "Find out how {module} reports bad arguments.",
    "Say which functions of {module} other modules may rely on.",
    "Explain what {module} does when its input is empty.",
    "Look for state in {module} that two threads could share.",
    "Tell which parts of {module} would need a test first.",
    "Describe how {module} splits its work into functions.",
)


class WorkloadError(ValueError):
    """Sizes that cannot be made, or a workload file that is not one."""


@dataclass(frozen=True)
class WorkloadSpec:
    """How large the work is.  ``shared_tokens`` and ``new_tokens`` include the chat markers around the text."""

    agents: int = 6
    turns: int = 4
    shared_tokens: int = 1700
    new_tokens: int = 130
    output_tokens: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("agents", "turns", "output_tokens"):
            if getattr(self, name) < 1:
                raise WorkloadError(f"{name}: got {getattr(self, name)}, expected at least 1")
        for name, least in (("shared_tokens", 64), ("new_tokens", 48)):
            if getattr(self, name) < least:
                raise WorkloadError(f"{name}: got {getattr(self, name)}, expected at least {least}")


@dataclass(frozen=True)
class Workload:
    """``user[agent][turn]`` is what the agent is sent in that turn; ``system`` is the same for all."""

    spec: WorkloadSpec
    system: str
    user: tuple[tuple[str, ...], ...]
    sized_by: str
    """``tokenizer`` (sizes were measured) or ``characters`` (they are estimates)."""

    @property
    def digest(self) -> str:
        """12 hexadecimal digits that change with any character of the text."""
        text = json.dumps([self.system, self.user], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def opening(self, agent: int) -> list[Message]:
        """The messages of the agent's first request."""
        return [{"role": "system", "content": self.system}, self.user_message(agent, 0)]

    def user_message(self, agent: int, turn: int) -> Message:
        return {"role": "user", "content": self.user[agent][turn]}

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Read what ``save`` wrote.

        Raises:
            WorkloadError: the file is not a workload.
        """
        try:
            data = json.loads(path.read_text("utf-8"))
            return cls(
                spec=WorkloadSpec(**data["spec"]),
                system=data["system"],
                user=tuple(tuple(turns) for turns in data["user"]),
                sized_by=data["sized_by"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkloadError(f"{path}: expected a workload file: {error}") from error


def estimate_tokens(text: str) -> int:
    """Tokens of ``text`` by its length, where no tokenizer is at hand."""
    return round(len(text) / _CHARACTERS_PER_TOKEN)


def build_workload(spec: WorkloadSpec, count: TokenCounter | None = None) -> Workload:
    """Make the conversations of ``spec``.

    Args:
        count: measures text; without it sizes are estimated from the number of characters.
    """
    measure = count or estimate_tokens
    modules = list(_MODULES)
    random.Random(spec.seed).shuffle(modules)
    return Workload(
        spec=spec,
        system=_system_prompt(spec.shared_tokens - _SYSTEM_MARKERS, measure),
        user=tuple(tuple(_agent_turns(spec, agent, modules, measure)) for agent in range(spec.agents)),
        sized_by="tokenizer" if count else "characters",
    )


def _system_prompt(tokens: int, measure: TokenCounter) -> str:
    """The written prompt, cut at a line border, or followed by source text if ``tokens`` asks for more."""
    lines = Path(__file__).with_name("system_prompt.md").read_text("utf-8").splitlines()
    if measure("\n".join(lines)) < tokens:
        for module in ("textwrap", "argparse", "inspect", "typing", "subprocess"):
            lines += ["", f"# For reference: {module}.py", *(text for _, text in _source_lines(module))]
    return "\n".join(lines[: _lines_nearest(lines, tokens, measure)])


def _agent_turns(spec: WorkloadSpec, agent: int, modules: list[str], measure: TokenCounter) -> Iterator[str]:
    """Consecutive cuts of the agent's own modules.  A later agent on the same module starts further down in it."""
    lap, index = divmod(agent, len(modules))
    names = modules[index:] + modules[:index]
    source = ((name, number, text) for name in names for number, text in _source_lines(name))
    # A line is at least one token, so this many lines always hold the tokens that are asked for.
    lines = list(islice(source, 97 * lap, 97 * lap + spec.turns * spec.new_tokens))
    task = _TASKS[agent % len(_TASKS)].format(module=names[0])
    for turn in range(spec.turns):
        name, number, _ = lines[0]
        head = f"Task: {task}\n" if turn == 0 else ""
        head += f"Result of read_file, {name}.py from line {number}:\n"
        room = spec.new_tokens - _TURN_MARKERS - measure(head)
        taken = _lines_nearest([text for _, _, text in lines[: spec.new_tokens]], room, measure)
        yield head + "\n".join(text for _, _, text in lines[:taken])
        lines = lines[taken:]


def _lines_nearest(lines: list[str], tokens: int, measure: TokenCounter) -> int:
    """How many of the first lines (at least one) come nearest to ``tokens``.

    By bisection: the counter may be a server, so it is asked a dozen times, not once a line.

    Raises:
        WorkloadError: all lines together are shorter.
    """
    first_over = 1 + bisect_left(range(1, len(lines) + 1), tokens, key=lambda n: measure("\n".join(lines[:n])))
    if first_over > len(lines):
        raise WorkloadError(f"got {len(lines)} lines of text, expected enough for {tokens} tokens")
    over = measure("\n".join(lines[:first_over])) - tokens
    under = tokens - measure("\n".join(lines[: first_over - 1]))
    return first_over if over <= under else max(1, first_over - 1)


def _source_lines(module: str) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a module of the standard library, without the comments it begins with.

    Raises:
        WorkloadError: this Python comes without the source of its library.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in (folder / f"{module}.py", folder / module / "__init__.py"):
        if path.is_file():
            lines = enumerate(path.read_text("utf-8").splitlines(), 1)
            return dropwhile(lambda line: not line[1].strip() or line[1].startswith("#"), lines)
    raise WorkloadError(f"no source of {module} below {folder}: this Python has no library sources to replay")
