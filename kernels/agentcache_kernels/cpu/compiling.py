"""Compiled functions, kept on disk so that a machine compiles them once."""

from __future__ import annotations

import hashlib
import os
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
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_folder())
    try:
        return numba.njit(cache=True, nogil=True, parallel=True, error_model="numpy")(function)  # type: ignore[no-any-return]
    finally:
        config.CACHE_DIR = before


@cache
def _folder() -> Path:
    here = Path(__file__).parent
    digest = hashlib.sha256(f"{numba.__version__} {binding.get_host_cpu_name()}".encode())
    for path in sorted(here.glob("*.py")):
        digest.update(path.read_bytes())
    caches = here / "__pycache__"
    writable = os.access(caches if caches.exists() else here, os.W_OK)
    parent = caches if writable else Path.home() / ".cache" / "agentcache" / "compiled"
    return parent / digest.hexdigest()[:16]


def threads() -> int:
    """How many threads a kernel is to use: as many as torch does.  Tells numba, which keeps this for each thread."""
    _start_threads()
    wanted: int = min(torch.get_num_threads(), config.NUMBA_NUM_THREADS)
    if numba.get_num_threads() != wanted:
        numba.set_num_threads(wanted)
    return wanted


@cache
def _start_threads() -> None:
    """numba's first act is to tell OpenMP to use every core, and torch's OpenMP is the same one."""
    wanted = torch.get_num_threads()
    numba.get_num_threads()
    torch.set_num_threads(wanted)
