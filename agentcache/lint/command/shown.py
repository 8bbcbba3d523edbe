"""``--show-settings``: what is in force, as the configuration would say it, and where each comes from."""

from __future__ import annotations

import json
from typing import Any, TextIO

from agentcache.lint.command.choices import Choices


def show_settings(choices: Choices, out: TextIO) -> None:
    """TOML, with comments."""
    file = "none" if choices.config is None else f"{choices.config.path} [{choices.config.table}]"
    out.write(f"# configuration file: {file}\n[tool.agentcache.lint]\n")
    for key, value in _values(choices).items():
        if value is None:
            out.write(f"# {key} is not set\n")
            continue
        origin = choices.origins.get(key, "")
        out.write(f"{key} = {json.dumps(value, ensure_ascii=False)}{f'  # {origin}' if origin else ''}\n")
    rules = " ".join(rule.code for rule in choices.rules)
    out.write(f"# rules: {rules}\n")
    for each in choices.unknown:
        out.write(f"# unknown code in {each.key}: {each.code}\n")
    ignores = dict(choices.per_file_ignores)
    if ignores:
        out.write("\n[tool.agentcache.lint.per-file-ignores]\n")
        for pattern, codes in ignores.items():
            out.write(f"{json.dumps(pattern)} = {json.dumps(list(codes))}\n")
    for entry in choices.config.config.suppress if choices.config is not None else ():
        out.write("\n[[tool.agentcache.lint.suppress]]\n")
        for key, value in entry.model_dump(exclude_none=True).items():
            out.write(f"{key} = {json.dumps(value, ensure_ascii=False)}\n")


def _values(choices: Choices) -> dict[str, Any]:
    config, options = choices.config, choices.options
    configured = None if config is None else config.config
    include = [] if configured is None else configured.include
    kept = configured if configured is not None and options.select is None else None
    return {
        "select": list(
            options.select if options.select is not None else (kept.select if kept and kept.select else ["AC"])
        ),
        "extend-select": [*(kept.extend_select if kept else ()), *(options.extend_select or ())],
        "ignore": [*(kept.ignore if kept else ()), *(options.ignore or ())],
        "page-size": choices.page_sizes[0] if len(choices.page_sizes) == 1 else list(choices.page_sizes),
        "tokenizer": choices.tokenizer,
        "template": None if choices.template is None else str(choices.template),
        "min-tokens-lost": choices.min_tokens_lost,
        "output-format": choices.output_format,
        "fail-on": choices.fail_on,
        "baseline": None if choices.baseline is None else str(choices.baseline),
        "include": list(include),
        "exclude": list(choices.exclude),
    }
