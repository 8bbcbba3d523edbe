"""Compiled functions, kept on disk so that a machine compiles them once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import torch
from llvmlite import binding
from numba.core import config
from numba.core.caching import FunctionCache

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETE = "complete"
"""A file beside the compiled kernels once there are all of them."""


def check_float32(**tensors: torch.Tensor) -> None:
    """Kernels are given addresses: whatever lies there is taken for float32 numbers, one behind the other.

    Raises:
        ValueError: naming the tensor that is something else.
    """
    for name, tensor in tensors.items():
        if tensor.dtype is not torch.float32 or not tensor.is_contiguous() or tensor.device.type != "cpu":
            order = "" if tensor.is_contiguous() else ", not contiguous"
            raise ValueError(
                f"{name}: got {tensor.dtype} on {tensor.device}{order}, expected contiguous float32 on a CPU"
            )


def part(function: F) -> F:
    """A function that kernels call; compiled with them."""
    return numba.njit(error_model="numpy")(function)  # type: ignore[no-any-return]


def kernel(function: F) -> F:
    """Compile a function on its first call, or take what an earlier process compiled.

    It runs without the interpreter's lock, its ``prange`` loops on as many threads as :func:`threads` says.
    """
    made = numba.njit(nogil=True, parallel=True, error_model="numpy")(function)
    folder = _folder()
    if folder is not None:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            made._cache = _Cache(function)  # what cache=True does, with another class
        finally:
            config.CACHE_DIR = before

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with _turns():
            return made(*arguments)

    return run  # type: ignore[return-value]


class _Cache(FunctionCache):  # type: ignore[misc]  # numba is untyped to mypy here
    """Compiled code on disk, which may be torn, and a disk that may be full: neither is worth more than compiling again."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001  whatever reading rubbish leads to
            logger.warning("compiled kernels in %s cannot be read (%r): compiling anew", self.cache_path, error)
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.warning("compiled kernels cannot be kept in %s: %s", self.cache_path, error)


def compiled_before() -> bool:
    """Whether an earlier process compiled all that a start needs, for this processor and these sources."""
    folder = _folder()
    return folder is not None and (folder / _COMPLETE).exists()


def note_compiled() -> None:
    """Everything that a start needs has been compiled."""
    folder = _folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / _COMPLETE).touch()


@cache
def _folder() -> Path | None:
    """Beside the sources, or in the user's home; ``None`` where neither can be used: then each process compiles anew.

    Never in a folder that others can write: what lies there is run.  numba notices changes in a function's own file alone, so
    the folder is named after all files of this package.
    """
    here = Path(__file__).parent
    target = f"{config.CPU_NAME or binding.get_host_cpu_name()} {config.CPU_FEATURES}"
    digest = hashlib.sha256(f"{numba.__version__} {target}".encode())
    for path in sorted(here.glob("*.py")):
        digest.update(path.read_bytes())
    for place in (here / "__pycache__", Path("~/.cache/agentcache/compiled")):
        folder = _private(place)
        if folder is not None:
            return folder / digest.hexdigest()[:16]
    return None


def _private(place: Path) -> Path | None:
    """The folder, made if need be, if this user and nobody else can write there."""
    try:
        folder = place.expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):  # no such right, or no home
        return None
    own = about.st_uid == os.getuid() and not about.st_mode & 0o022
    return folder if own and os.access(folder, os.W_OK) else None


class _Told(threading.local):
    """What numba was last told on this thread."""

    count = 0


_told = _Told()


def threads() -> int:
    """How many threads a kernel is to use: as many as torch does.  Tells numba, which keeps this for each thread."""
    wanted: int = torch.get_num_threads()
    if wanted != _told.count:
        if _told.count == 0:
            _start_threads()
        numba.set_num_threads(min(wanted, config.NUMBA_NUM_THREADS))
        _told.count = wanted
    return wanted


@cache
def _start_threads() -> None:
    """numba's first act is to tell OpenMP to use every core, and torch's OpenMP is the same one."""
    wanted = torch.get_num_threads()
    numba.get_num_threads()
    torch.set_num_threads(wanted)


@cache
def _turns() -> contextlib.AbstractContextManager[Any]:
    """Kernels of different threads go one after another where numba has no OpenMP: its own pool ends the process otherwise."""
    _start_threads()
    return threading.Lock() if numba.threading_layer() == "workqueue" else contextlib.nullcontext()
