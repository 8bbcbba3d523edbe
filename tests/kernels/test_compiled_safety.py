"""Compiled kernels are given addresses and keep files: nothing wrong may get there, nothing broken may stop a start."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import agentcache_kernels
from agentcache_kernels import make_attention_batch, paged_attention
from agentcache_kernels.attention import turned
from agentcache_kernels.cpu.linear import PackedInt8, PackedWeight
from agentcache_kernels.cpu.rows import Turns, add_rms_norm, rotate_and_write, silu_and_mul

ONE_KERNEL = (
    "import torch\n"
    "from agentcache_kernels.cpu.rows import silu_and_mul\n"
    "from agentcache_kernels.cpu import compiling\n"
    "print(float(silu_and_mul(torch.ones(1, 8)).sum()), compiling.compiled_before())\n"
)


class Installation:
    """The kernels in a folder of their own, with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.site, self.home = folder / "site", folder / "home"
        self.package = self.site / "agentcache_kernels"
        ignore = shutil.ignore_patterns("__pycache__", "gpu")
        shutil.copytree(Path(agentcache_kernels.__file__).parent, self.package, ignore=ignore)
        self.home.mkdir()

    def run(self, code: str = ONE_KERNEL, **environment: str) -> subprocess.CompletedProcess[str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        env = {**known, "PYTHONPATH": str(self.site), "HOME": str(self.home), **environment}
        done = subprocess.run([sys.executable, "-c", code], check=False, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def files(self, pattern: str) -> list[Path]:
        return [*self.package.rglob(pattern), *self.home.rglob(pattern)]


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


RESULT = "2.92"  # 4 * 1 / (1 + exp(-1))


def test_what_is_torn_is_compiled_anew(installation: Installation) -> None:
    assert RESULT in installation.run().stdout
    assert installation.files("*.nbi") and installation.files("*.nbc")
    for pattern, harm in (
        ("*.nbi", lambda content: content[: len(content) // 2]),
        ("*.nbi", lambda content: b""),
        ("*.nbc", lambda content: content[: len(content) // 2]),
    ):
        for path in installation.files(pattern):
            path.write_bytes(harm(path.read_bytes()))
        done = installation.run()
        assert RESULT in done.stdout and "compiling anew" in done.stderr, pattern
        assert not installation.run().stderr, "the next start reads what was compiled"


def test_a_folder_that_others_can_write_is_not_used(installation: Installation) -> None:
    beside = installation.package / "cpu" / "__pycache__"
    beside.mkdir()
    beside.chmod(0o777)
    assert RESULT in installation.run().stdout
    assert not [*beside.rglob("*.nbi")] and [*installation.home.rglob("*.nbi")]
    kept = installation.home / ".cache" / "agentcache" / "compiled"
    shutil.rmtree(kept)
    kept.mkdir()
    kept.chmod(0o777)
    assert RESULT in installation.run().stdout
    assert not installation.files("*.nbi")


def test_a_start_is_known_to_have_compiled_only_once_it_has(installation: Installation) -> None:
    assert installation.run().stdout.endswith("False\n")
    installation.run(ONE_KERNEL + "compiling.note_compiled()")
    assert installation.run().stdout.endswith("True\n")


def test_kernels_of_several_threads_take_turns_where_numba_has_no_openmp(installation: Installation) -> None:
    code = (
        "import threading, torch\n"
        "from agentcache_kernels.cpu.rows import silu_and_mul\n"
        "x = torch.ones(3000, 64)\n"
        "def work():\n"
        "    for _ in range(200): assert abs(float(silu_and_mul(x)[0, 0]) - 0.731) < 1e-3\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "import numba; print(numba.threading_layer())\n"
    )
    assert installation.run(code, NUMBA_THREADING_LAYER="workqueue").stdout == "workqueue\n"


@pytest.mark.parametrize("broken", ["raise ImportError('Numba needs NumPy 2.2 or less')", None])
def test_a_numba_that_does_not_work_leaves_the_model_to_torch(installation: Installation, broken: str | None) -> None:
    code = (
        "import torch\n"
        "from agentcache_kernels.cpu.available import compiles\n"
        "print(compiles(torch.device('cpu'), torch.float32))\n"
    )
    if broken is not None:
        (installation.site / "numba").mkdir()
        (installation.site / "numba" / "__init__.py").write_text(broken)
        done = installation.run(code)
        assert "NumPy 2.2 or less" in done.stderr
    else:
        done = installation.run(code, NUMBA_DISABLE_JIT="1")
    assert done.stdout == "False\n"


def test_a_copy_of_packed_weights_stands_on_its_own() -> None:
    weight, x = torch.randn(40, 24), torch.randn(3, 24)
    first = PackedWeight(weight)
    second = copy.deepcopy(first)
    expected = first(x)
    first.panels.zero_()
    assert torch.equal(second(x), expected)


WRONG = {
    "float64": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "not contiguous": lambda x: torch.stack((x, x), -1)[..., 0],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_tensors_of_another_kind_are_refused_by_name(wrong: str) -> None:
    spoil = WRONG[wrong]
    x, ones = torch.ones(4, 8), torch.ones(8)
    with pytest.raises(ValueError, match="hidden: got"):
        add_rms_norm(spoil(x), None, ones, 1e-5)
    with pytest.raises(ValueError, match="delta: got"):
        add_rms_norm(x, spoil(x), ones, 1e-5)
    with pytest.raises(ValueError, match="gate_up: got"):
        silu_and_mul(spoil(x))
    keys, values, q = torch.ones(1, 3, 4, 8), torch.ones(1, 3, 4, 8), torch.ones(1, 2, 8)
    turns = Turns.of(torch.ones(9, 4), torch.ones(9, 4), torch.zeros(1).long(), torch.zeros(1).long())
    with pytest.raises(ValueError, match="qkv: got"):
        rotate_and_write(spoil(torch.ones(1, 32)), turns, turned(keys), values, None)
    batch = make_attention_batch([1], [5], [[0, 1]], 4, torch.device("cpu"))

    def attention(q: Tensor = q, keys: Tensor = keys, values: Tensor = values) -> Tensor:
        return paged_attention(q, turned(keys), values, batch, scale=1.0)

    with pytest.raises(ValueError, match="v_pages: got"):
        attention(values=spoil(values))
    if wrong == "not contiguous":  # which torch's operators take as well
        assert torch.equal(attention(q=spoil(q)), attention())
        assert torch.equal(PackedWeight(torch.ones(4, 8))(spoil(x)), torch.full((4, 4), 8.0))
    else:
        with pytest.raises(ValueError, match="q: got"):
            attention(q=spoil(q))
        with pytest.raises(ValueError, match="keys: got"):
            attention(keys=spoil(keys))
        with pytest.raises(ValueError, match=r"expected float32 \[rows, 8\]"):
            PackedWeight(torch.ones(4, 8))(spoil(x))


def test_sizes_positions_and_slots_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got torch.float32 \[3, 7\], expected float32 \[rows, 8\]"):
        PackedInt8(torch.ones(4, 8, dtype=torch.int8), torch.ones(4))(torch.ones(3, 7))
    with pytest.raises(ValueError, match="expected one size"):
        add_rms_norm(torch.ones(4, 8), torch.ones(3, 8), torch.ones(8), 1e-5)
    table, pool = torch.ones(10, 4), torch.ones(1, 3, 4, 8)
    for position in (10, -1):
        with pytest.raises(ValueError, match=f"got positions {position} to {position}, expected 0 to 9"):
            Turns.of(table, table, torch.tensor([position]), torch.tensor([0]))
    for slots in (torch.tensor([12]), torch.tensor([0, 1])):
        turns = Turns.of(table, table, torch.zeros(len(slots)).long(), slots)
        with pytest.raises(ValueError, match="expected one for each and slots below 12"):
            rotate_and_write(torch.ones(1, 32), turns, turned(pool), pool.clone(), None)


def test_products_are_float32_whatever_torchs_default_is() -> None:
    packed, x = PackedWeight(torch.randn(64, 32)), torch.randn(5, 32)
    expected = packed(x)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(packed(x), expected)
        assert silu_and_mul(x).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
