"""``agentcache lint``.

Exit codes: 0 nothing found, 1 findings, 2 an error (a bad command line, what cannot be read), 130 interrupted.
"""

from __future__ import annotations

import sys

from agentcache.errors import AgentCacheError
from agentcache.lint.command.choices import choose
from agentcache.lint.command.manual import rule_command
from agentcache.lint.command.options import parser
from agentcache.lint.command.run import lint_command
from agentcache.lint.command.shown import show_settings
from agentcache.lint.command.sieve import CLEAN, ERROR
from agentcache.lint.command.writing import discard_output, escape_what_cannot_be_spelled, note

_INTERRUPTED = 130


def main(argv: list[str]) -> int:
    """Run the linter.

    Args:
        argv: the command line behind ``agentcache lint``.

    Returns:
        The exit code.
    """
    if sys.stdout is None:
        note("error: standard output is closed")
        return ERROR
    escape_what_cannot_be_spelled()
    try:
        return _dispatch(argv)
    except SystemExit as stop:  # argparse
        return stop.code if isinstance(stop.code, int) else ERROR
    except AgentCacheError as error:
        for sentence in str(error).splitlines():
            note(f"error: {sentence}")
        return ERROR
    except KeyboardInterrupt:
        note("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        discard_output()
        return CLEAN
    except OSError as error:  # a full disk behind standard output
        note(f"error: the output cannot be written: {error.strerror or error}")
        discard_output()
        return ERROR


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["rule"]:
        return rule_command(argv[1:])
    if argv[:1] == ["template"]:
        from agentcache.lint.templates import template_command

        return template_command(argv[1:])
    options = parser().parse_intermixed_args(argv)
    choices = choose(options)
    if options.show_settings:
        show_settings(choices, sys.stdout)
        sys.stdout.flush()
        return 0
    if options.live is not None:
        from agentcache.lint.command.server import live_command

        return live_command(choices)
    return lint_command(choices)
