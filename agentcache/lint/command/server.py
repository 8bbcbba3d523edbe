"""``agentcache lint --live URL``: a running server's own findings, sieved and written like those of files."""

from __future__ import annotations

from dataclasses import replace

from agentcache.errors import SettingsError
from agentcache.lint.baseline import Baseline, Looked
from agentcache.lint.command.choices import Choices
from agentcache.lint.command.sieve import exit_code, worth_reporting
from agentcache.lint.command.targets import check_targets
from agentcache.lint.command.writing import note, write
from agentcache.lint.live.report import live_findings
from agentcache.lint.outputs.outcome import Outcome
from agentcache.lint.suppressions import Suppressions
from agentcache.settings import client_api_key


def live_command(choices: Choices) -> int:
    """
    Returns:
        The exit code.

    Raises:
        AgentCacheError: the server cannot be asked.
    """
    options = choices.options
    if options.files or options.fix or options.diff or options.write_baseline is not None:
        given = options.files[0] if options.files else "--fix, --diff or --write-baseline"
        raise SettingsError(f"--live asks a server and reads no files: got {given} beside it")
    about_files = ("page_size", "tokenizer", "template", "stdin_filename", "exclude", "unsafe_fixes")
    for name in (name for name in about_files if getattr(options, name) not in (None, False)):
        raise SettingsError(f"--live asks a server, which has its own: got --{name.replace('_', '-')} beside it")
    check_targets(choices, ())
    live = live_findings(options.live, options.api_key or client_api_key())
    suppressions = Suppressions(choices.config)
    kept = suppressions.sieve(finding for finding in live.findings if finding.code in choices.codes)
    findings = worth_reporting(choices, kept)
    outcome = Outcome(findings, live.report, [], suppressed=suppressions.suppressed, fail_on=choices.fail_on)
    if choices.baseline is not None:
        compared = Baseline(choices.baseline, lambda _: None).compare(findings, Looked())
        outcome = replace(outcome, findings=compared.new, known=compared.known)
    if options.statistics and not options.quiet:
        pages = ", ".join(f"{count:,} {state}" for state, count in live.pages.items())
        note(f"the server's pages: {pages}")
    write(outcome, choices)
    return exit_code(choices, outcome, failed=False)
