"""Runs parts of the check in this process; ``bench/gpu_check.py`` starts it.

    python bench/gpu_parts/run.py FOLDER PART...

What a part finds goes to ``FOLDER/PART.jsonl``; a part that ends well adds ``FOLDER/PART.done``.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.gpu_parts.notes import Notes

PARTS = {
    "kernels": "kernels.run",
    "bandwidth": "attention.bandwidth",
    "prefill": "attention.prefill",
    "shared": "attention.shared",
    "bits": "bits.run",
    "cache_on": "serving.cache_on",
    "cache_off": "serving.cache_off",
}
"""Module and function.  Imported when they run, so that what one of them needs cannot keep the others from it."""


def main(arguments: list[str]) -> int:
    folder, interpret, failed = Path(arguments[0]), os.environ.get("TRITON_INTERPRET") == "1", 0
    for part in arguments[1:]:
        notes = Notes(part, folder / f"{part}.jsonl", interpret)
        try:
            module, _, function = PARTS[part].partition(".")
            getattr(importlib.import_module(f"bench.gpu_parts.{module}"), function)(notes)
        except Exception:  # noqa: BLE001  the other parts are worth having
            traceback.print_exc()
            failed += 1
        else:
            (folder / f"{part}.done").touch()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
