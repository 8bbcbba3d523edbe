"""Turns a GGUF file into a folder in Hugging Face layout, once.

::

    home/models/<name>-<fingerprint>/            complete, or not there at all: it is renamed into place
    home/models/.<name>-<fingerprint>.lock       held while converting, let go by the system when its process dies
    home/models/.<name>-<fingerprint>.partial/   being written; what a crash leaves is thrown away by the next one
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcache.errors import UnsupportedModelError

FORMAT = "3"
"""Part of the fingerprint: raise it whenever the same file would convert differently."""

_MARK = "conversion.json"
_SHARD_BYTES = 4 * 10**9

Progress = Callable[[str], None]


def convert_gguf(source: Path, target: Path, progress: Progress) -> None:
    """Make ``target`` from ``source`` unless it exists.  Safe against a second process and against a crash.

    Raises:
        UnsupportedModelError: the file is broken or holds a model that is not served.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.with_name(f".{target.name}.lock"), lambda: progress(f"Another process is converting {source}")):
        if target.is_dir():
            return
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            _convert(source, partial, progress)
            _flush(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    progress(f"Kept the converted model in {target}")


def converted_models(home: Path) -> list[Path]:
    """The folders that GGUF files were converted to, by name."""
    return sorted(path.parent for path in (home / "models").glob(f"*/{_MARK}"))


def is_current(folder: Path) -> bool:
    """Whether ``folder`` was made by this version of the conversion."""
    try:
        mark = json.loads((folder / _MARK).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("format") == FORMAT


@contextmanager
def _alone(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _convert(source: Path, folder: Path, progress: Progress) -> None:
    # These imports take seconds; a start that finds the folder made never gets here.
    from agentcache.model.config import parse_config
    from agentcache.model.gguf_file import GGUFFile
    from agentcache.model.quantized_store import save_groups

    progress(f"Converting {source.name} (once; the next start takes it from {folder.parent})")
    file = GGUFFile(source)
    raw = file.config()
    config = parse_config(raw, str(source))
    _write_json(folder / "config.json", raw)
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write_json(folder / "generation_config.json", {key: raw[key] for key in tokens if raw[key] is not None})
    progress("Converting the tokenizer")
    _convert_tokenizer(source, folder, config.max_position_embeddings)
    progress("Unpacking the weights to float32")
    _save_sharded(folder, file.tensors())
    if groups := dict(file.group_codes()):
        progress(f"Keeping the 4-bit codes of {len(groups)} matrices for --weights int4")
        save_groups(folder, groups)
    _check(folder, source)
    _write_json(folder / _MARK, {"format": FORMAT, "source": source.name})


def _convert_tokenizer(source: Path, folder: Path, max_length: int) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UnsupportedModelError(f"{source}: its tokenizer cannot be read: {error}") from None
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8"))
    for key in ("is_local", "local_files_only"):  # about this run, not about the tokenizer
        settings.pop(key, None)
    settings["model_max_length"] = max_length
    _write_json(path, settings)


def _save_sharded(folder: Path, tensors: Iterator[tuple[str, Any]]) -> None:
    """Write as they come, so that a large model never has to fit in memory twice."""
    from safetensors.torch import save_file

    shard: dict[str, Any] = {}
    names: list[list[str]] = []
    held = 0

    def write() -> None:
        save_file(shard, folder / f"shard-{len(names)}.safetensors", metadata={"format": "pt"})
        names.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        if shard and held + tensor.nbytes > _SHARD_BYTES:
            write()
            held = 0
        shard[name] = tensor.contiguous()
        held += tensor.nbytes
    write()
    if len(names) == 1:
        (folder / "shard-0.safetensors").rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for index, held_names in enumerate(names):
        final = f"model-{index + 1:05d}-of-{len(names):05d}.safetensors"
        (folder / f"shard-{index}.safetensors").rename(folder / final)
        weight_map |= dict.fromkeys(held_names, final)
    _write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


def _check(folder: Path, source: Path) -> None:
    """Refuse here, where the GGUF can still be named, what the loader would refuse later."""
    import torch

    from agentcache.model.checkpoint import Checkpoint
    from agentcache.model.config import read_config
    from agentcache.model.transformer import Transformer

    expected = Transformer(read_config(folder), dtype=torch.float32, device=torch.device("meta")).weight_slots()
    found = Checkpoint.open(folder).names()
    if differing := sorted(found ^ expected.keys()):
        state = "missing" if differing[0] in expected else "without a place in this model"
        raise UnsupportedModelError(f"{source}: tensor {differing[0]} is {state} ({len(differing)} such tensors)")


def _flush(folder: Path) -> None:
    """Have the files on disk before the rename, so that a power cut cannot leave a complete-looking folder."""
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
