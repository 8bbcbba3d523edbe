"""The 4-bit codes of a GGUF file, beside the weights that were unpacked from it.

One safetensors file with three tensors for each matrix: codes two to a byte, scales, least weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentcache.errors import UnsupportedModelError
from agentcache.model.quantized_codes import GroupCodes

# Not called model*.safetensors: nobody who opens the folder may take it for weights.
_FILE = "int4.safetensors"
_PARTS = ("codes", "scales", "leasts")


def save_groups(folder: Path, groups: Mapping[str, GroupCodes]) -> None:
    """Write the codes of matrices by name."""
    tensors: dict[str, Tensor] = {}
    for name, codes in groups.items():
        values = (codes.to_bytes(), codes.scales, codes.leasts)
        tensors |= {f"{name}.{part}": value.contiguous() for part, value in zip(_PARTS, values, strict=True)}
    save_file(tensors, folder / _FILE)


class StoredGroups:
    """What :func:`save_groups` wrote into a folder; nothing when it did not, or when there is no folder.

    Raises:
        UnsupportedModelError: the file is broken.
    """

    def __init__(self, folder: Path | None) -> None:
        self.names: frozenset[str] = frozenset()
        if folder is None or not (folder / _FILE).is_file():
            return
        self._path = folder / _FILE
        try:
            with safe_open(self._path, framework="pt") as opened:
                keys = list(opened.keys())
        except (SafetensorError, OSError) as error:
            raise UnsupportedModelError(f"{self._path}: not a readable safetensors file: {error}") from None
        self.names = frozenset(key.removesuffix(".codes") for key in keys if key.endswith(".codes"))

    def codes(self, name: str) -> GroupCodes:
        """The codes of one of :attr:`names`."""
        with safe_open(self._path, framework="pt") as opened:
            packed, scales, leasts = (opened.get_tensor(f"{name}.{part}") for part in _PARTS)
        return GroupCodes.from_bytes(packed, scales, leasts)
