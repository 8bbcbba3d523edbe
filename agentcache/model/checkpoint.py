"""The safetensors files of a folder, one or many, as one mapping from tensor name to tensor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentcache.errors import UnsupportedModelError

if TYPE_CHECKING:
    from torch import Tensor

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The weight files of ``folder``, in a stable order; empty when it has none.

    Raises:
        UnsupportedModelError: the index is broken or names a file that is not there.
    """
    if (folder / _INDEX).is_file():
        try:
            shards = sorted(set(json.loads((folder / _INDEX).read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnsupportedModelError(f"{folder / _INDEX}: not a valid index of shards: {error!r}") from None
        for shard in shards:
            if not (folder / shard).is_file():
                raise UnsupportedModelError(f"{folder}: shard {shard} is missing, which {_INDEX} names")
        return [folder / shard for shard in shards]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    return sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("consolidated"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Which file holds which tensor.  Files are mapped into memory and read one tensor at a time."""

    files: dict[Path, list[str]]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the headers of the folder's weight files.

        Raises:
            UnsupportedModelError: there are none, or one is broken.
        """
        # Imported late: the linter finds models through this module, and the base install has no safetensors.
        from safetensors import SafetensorError, safe_open

        paths = weight_files(folder)
        if not paths:
            raise UnsupportedModelError(f"{folder}: no *.safetensors in it{_found_instead(folder)}")
        files = {}
        for path in paths:
            try:
                with safe_open(path, framework="pt") as opened:
                    files[path] = list(opened.keys())
            except (SafetensorError, OSError) as error:
                raise UnsupportedModelError(f"{path}: not a readable safetensors file: {error}") from None
        return cls(files)

    def names(self) -> set[str]:
        return {name for names in self.files.values() for name in names}

    def tensors(self, wanted: set[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield the wanted tensors, file by file."""
        from safetensors import safe_open

        for path, names in self.files.items():
            with safe_open(path, framework="pt") as opened:
                for name in names:
                    if name in wanted:
                        yield name, opened.get_tensor(name)


def _found_instead(folder: Path) -> str:
    if pickled := sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*")):
        return f" but {pickled[0].name}: pickled weights are not read (they can run code), convert them to safetensors"
    if packed := sorted(folder.glob("*.gguf")):
        return f" but {packed[0].name}: give that file as the model"
    return ""
