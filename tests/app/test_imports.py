"""What the base install and the core may import, proved in fresh processes."""

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_FREE = [
    "agentcache",
    "agentcache.settings",
    "agentcache.cli",
    "agentcache.terminal",
    "agentcache.cache.manager",
    "agentcache.cache.prefix_tree",
    "agentcache.scheduler.scheduler",
    "agentcache.engine.core",
    "agentcache.engine.loop",
    "agentcache.chat.renderer",
    "agentcache.chat.detokenizer",
    "agentcache.dialects.anthropic.conversation",
    "agentcache.dialects.responses.items",
    "agentcache.lint.cli",
    "agentcache.lint.fixes.apply",
    "agentcache.lint.live",
    "agentcache.lint.python",
    "agentcache.lint.readers.kinds",
    "agentcache.lint.templates",
    "agentcache.kv_events.publisher",
    "agentcache.model.hub",
    "agentcache.routing.router",
    "agentcache.routing.table",
    "agentcache.store.opening",
    "agentcache.store.redis_store",
    "agentcache.store.tier",
    "agentcache_sdk",
]


def imported_by(module: str) -> set[str]:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


@pytest.mark.parametrize("module", TORCH_FREE)
def test_it_never_imports_torch(module):
    assert not imported_by(module) & {"torch", "transformers", "triton", "safetensors", "numpy"}


def test_the_command_line_reads_settings_of_clusters_without_ray():
    assert not imported_by("agentcache.cli") & {"ray", "fastapi", "uvicorn"}


def test_the_sdk_stands_on_httpx_and_pydantic_alone():
    assert not imported_by("agentcache_sdk") & {"agentcache", "fastapi", "tokenizers", "xxhash", "prometheus_client"}


def test_no_package_is_called_kernels():
    """transformers probes for a package of that name and would take ours for it."""
    code = "import importlib.util, agentcache_kernels; print(importlib.util.find_spec('kernels'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert run.stdout.strip() == "None"


def test_imports_point_downwards_only():
    """cache knows nobody; chat and scheduler know what is below; the server knows everything and nobody knows it."""
    allowed = {
        "cache": set(),
        "chat": set(),
        "dialects": {"chat"},
        "scheduler": {"cache"},
        "model": {"cache", "scheduler"},
        "lint": {"cache", "chat", "dialects", "model"},
        "sessions": {"cache", "chat"},
        "store": {"cache", "sessions"},
        "kv_events": {"cache"},
        "engine": {"cache", "chat", "scheduler", "model", "store", "kv_events"},
        "server": {"cache", "chat", "dialects", "scheduler", "engine", "lint", "sessions"},
        "routing": {"cache", "chat", "dialects", "server", "sessions"},
        "ray": {"cache", "engine", "kv_events", "routing", "server", "sessions", "store"},
    }
    for room, below in allowed.items():
        for file in (ROOT / "agentcache" / room).rglob("*.py"):
            for line in file.read_text("utf-8").splitlines():
                words = line.split()
                if line.lstrip() != line or len(words) < 2 or words[0] not in {"from", "import"}:
                    continue  # imports inside functions and for type checkers are no arrows of the running program
                parts = words[1].split(".")
                if parts[0] == "agentcache" and len(parts) > 1 and parts[1] in allowed and parts[1] != room:
                    assert parts[1] in below, f"{file.relative_to(ROOT)} imports {words[1]}"


def test_no_two_modules_of_the_linter_wait_for_each_other():
    """So any of them can be imported first."""
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (ROOT / "agentcache" / "lint").rglob("*.py")
    }
    waits: dict[str, set[str]] = {}
    for name, file in files.items():
        waits[name] = set()
        for node in ast.parse(
            file.read_text("utf-8")
        ).body:  # what is imported later, or for type checkers, waits for nobody
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                wanted = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                wanted |= {str(parent).replace("/", ".") for parent in Path(node.module.replace(".", "/")).parents}
                # A package that is being imported is there already for what is inside it.
                waits[name] |= {other for other in wanted & set(files) if not name.startswith(f"{other}.")} - {name}
    assert len(files) > 150
    tuple(TopologicalSorter(waits).static_order())


def test_rules_are_found_when_they_are_asked_for():
    """What they stand on imports their package, and would wait for them otherwise."""
    code = """
import sys
import agentcache.lint.rules as rules

print([name for name in sys.modules if ".rules.ac" in name], len(rules.RULES))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    before, count = run.stdout.rsplit(maxsplit=1)
    assert before == "[]" and int(count) > 40
