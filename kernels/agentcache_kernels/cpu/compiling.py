"""Compiled functions, kept on disk so that a machine compiles them once."""

from __future__ import annotations

import hashlib
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

F = TypeVar("F", bound=Callable[..., Any])


def part(function: F) -> F:
    """A function that kernels call; compiled with them."""
    return numba.njit(error_model="numpy")(function)  # type: ignore[no-any-return]


def kernel(function: F) -> F:
    """Compile a function on its first call, or take what an earlier process compiled.

    It runs without the interpreter's lock, its ``prange`` loops on as many threads as :func:`threads` says.  numba notices
    changes in the function's own file alone, so the folder where results are kept is named after all files of this package.
    """
    folder = _folder()
    if folder is None:
        return _compile(function, cache=False)
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        return _compile(function, cache=True)
    finally:
        config.CACHE_DIR = before


def _compile(function: F, *, cache: bool) -> F:
    return numba.njit(cache=cache, nogil=True, parallel=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def compiled_before() -> bool:
    """Whether an earlier process left compiled kernels for this processor and these sources."""
    folder = _folder()
    return folder is not None and any(folder.glob("*.nbi"))


@cache
def _folder() -> Path | None:
    """Beside the sources, or in the user's home; ``None`` where neither can be written: then each process compiles anew.

    Never in a folder that others can write: what lies there is run.
    """
    here = Path(__file__).parent
    target = f"{config.CPU_NAME or binding.get_host_cpu_name()} {config.CPU_FEATURES}"
    digest = hashlib.sha256(f"{numba.__version__} {target}".encode())
    for path in sorted(here.glob("*.py")):
        digest.update(path.read_bytes())
    for place in (here / "__pycache__", Path.home() / ".cache" / "agentcache" / "compiled"):
        if _writable(place):
            return place / digest.hexdigest()[:16]
    return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


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
