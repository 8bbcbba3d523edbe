"""What a run is to do: the command line over the configuration over the defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcache.errors import SettingsError
from agentcache.lint.config import ConfigFile, FailOn, LintConfig, OutputFormat, find_config, read_config, served_model
from agentcache.lint.rules import RULES, select_rules
from agentcache.lint.rules.base import Rule
from agentcache.lint.suppressions import is_known, nearest

DEFAULT_TOKENIZER = "smollm2"
DEFAULT_PAGE_SIZE = 16


@dataclass(frozen=True)
class UnknownCode:
    """A code that the configuration names and no rule has.

    Attributes:
        key: the key that names it.
    """

    code: str
    key: str


@dataclass(frozen=True)
class Choices:
    """
    Attributes:
        options: the command line, for what only it can say.
        config: the configuration file; ``None``: there is none.
        rules: whose findings are reported.
        unknown: codes of the configuration that no rule has.
        per_file_ignores: patterns of files, and beginnings of codes that are not reported there.
        root: the folder that patterns are relative to.
        page_sizes: the first is that of findings.
        fail_on: findings that weigh less are told and fail nothing.
        origins: where each setting comes from, for people.
    """

    options: argparse.Namespace
    config: ConfigFile | None
    rules: tuple[Rule, ...]
    unknown: tuple[UnknownCode, ...]
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...]
    root: Path
    page_sizes: tuple[int, ...]
    tokenizer: str
    template: Path | None
    min_tokens_lost: int
    output_format: OutputFormat
    fail_on: FailOn
    baseline: Path | None
    exclude: tuple[str, ...]
    origins: Mapping[str, str]

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(rule.code for rule in self.rules)


def choose(options: argparse.Namespace) -> Choices:
    """Merge the command line and the configuration.

    Raises:
        SettingsError: a configuration that is not as it should be, or a code on the command line that no rule has.
    """
    file = _config_file(options)
    config = LintConfig() if file is None else file.config
    root = Path.cwd() if file is None else file.root
    origins: dict[str, str] = {}

    def pick(key: str, given: Any, configured: Any, default: Any) -> Any:
        value, origin = (given, "command line") if given is not None else (configured, "")
        if value is None:
            value, origin = default, "default"
        origins[key] = origin or (file.shown if file is not None else "default")
        return value

    unknown, rules = _rules(options, config)
    for key in ("select", "extend_select", "ignore"):
        pick(key.replace("_", "-"), getattr(options, key), getattr(config, key) or None, ())
    pick("include", None, config.include or None, ())
    sizes = pick("page-size", options.page_size, config.page_size, DEFAULT_PAGE_SIZE)
    tokenizer = pick("tokenizer", options.tokenizer, _beside(config.tokenizer, root), None)
    if tokenizer is None:
        served = None if options.isolated else served_model(Path.cwd())
        tokenizer = served or DEFAULT_TOKENIZER
        origins["tokenizer"] = "agentcache.toml" if served else "default"
    configured = tuple((pattern, _upper(named)) for pattern, named in config.per_file_ignores.items())
    ignores = pick("per-file-ignores", options.per_file_ignores, configured or None, ())
    template = pick("template", options.template, _path(config.template, root), None)
    baseline = pick("baseline", options.baseline, _path(config.baseline, root), None)
    return Choices(
        options=options,
        config=file,
        rules=rules,
        unknown=unknown,
        per_file_ignores=tuple(ignores),
        root=root if options.per_file_ignores is None else Path.cwd(),
        page_sizes=(sizes,) if isinstance(sizes, int) else tuple(dict.fromkeys(sizes)),
        tokenizer=tokenizer,
        template=template,
        min_tokens_lost=pick("min-tokens-lost", options.min_tokens_lost, config.min_tokens_lost, 0),
        output_format=pick("output-format", options.output_format, config.output_format, "full"),
        fail_on=pick("fail-on", options.fail_on, config.fail_on, "info"),
        baseline=baseline,
        exclude=tuple(pick("exclude", options.exclude, tuple(config.exclude) or None, ())),
        origins=origins,
    )


def _config_file(options: argparse.Namespace) -> ConfigFile | None:
    if options.isolated:
        return None
    return read_config(options.config) if options.config is not None else find_config(Path.cwd())


def _rules(options: argparse.Namespace, config: LintConfig) -> tuple[tuple[UnknownCode, ...], tuple[Rule, ...]]:
    """``--select`` stands for all that the configuration chooses; ``--extend-select`` and ``--ignore`` add to it."""
    unknown: list[UnknownCode] = []

    def configured(key: str, named: list[str] | None) -> tuple[str, ...]:
        unknown.extend(UnknownCode(code, key) for code in named or () if not is_known(code))
        return tuple(code for code in _upper(named or []) if is_known(code))

    select, ignore = configured("select", config.select), configured("ignore", config.ignore)
    extend = configured("extend-select", config.extend_select)
    for pattern, named in config.per_file_ignores.items():
        configured(f"per-file-ignores.{pattern}", named)
    for entry in config.suppress:
        configured("suppress", [entry.code])
    if options.select is not None:
        select, ignore, extend = options.select, (), ()
    for flag, named in (
        ("--select", options.select),
        ("--extend-select", options.extend_select),
        ("--ignore", options.ignore),
        *(("--per-file-ignores", named) for _, named in options.per_file_ignores or ()),
    ):
        _check(flag, named or ())
    try:
        rules = select_rules(select, (*ignore, *(options.ignore or ())), (*extend, *(options.extend_select or ())))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return tuple(unknown), rules


def _check(flag: str, named: tuple[str, ...]) -> None:
    for code in named:
        if not is_known(code):
            known = ", ".join(rule.code for rule in RULES)
            raise SettingsError(
                f"{flag}: got {code!r}, expected the beginning of a rule's code{nearest(code)} (this version has {known})"
            )


def _upper(named: list[str]) -> tuple[str, ...]:
    return tuple(code.upper() for code in named)


def _path(name: str | None, root: Path) -> Path | None:
    return None if name is None else root / Path(name).expanduser()


def _beside(name: str | None, root: Path) -> str | None:
    """A folder next to the configuration, or the name of a model."""
    if name is None:
        return None
    folder = root / Path(name).expanduser()
    return str(folder) if folder.exists() else name
