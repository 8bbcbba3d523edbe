"""``agentcache lint``.

Exit codes: 0 nothing found, 1 findings, 2 an error (a bad command line, what cannot be read), 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback

from agentcache.errors import AgentCacheError

_CLEAN, _ERROR, _INTERRUPTED = 0, 2, 130
_TRACEBACK = "--traceback"


def main(argv: list[str]) -> int:
    """Run the linter.

    What it stands on is imported when it runs, so that an interrupt in that time is told like any other.

    Args:
        argv: the command line behind ``agentcache lint``.

    Returns:
        The exit code.
    """
    if sys.stdout is None:
        _say("error: standard output is closed")
        return _ERROR
    try:
        return _dispatch([word for word in argv if word != _TRACEBACK])
    except SystemExit as stop:  # argparse
        return stop.code if isinstance(stop.code, int) else _ERROR
    except AgentCacheError as error:
        for sentence in str(error).splitlines():
            _say(f"error: {sentence}")
        return _ERROR
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        from agentcache.lint.command.writing import discard_output

        discard_output()
        return _CLEAN
    except OSError as error:  # a full disk behind standard output
        if error.filename is not None:
            return _fault(error, argv)
        from agentcache.lint.command.writing import discard_output

        _say(f"error: the output cannot be written: {error.strerror or error}")
        discard_output()
        return _ERROR
    except Exception as error:  # noqa: BLE001 - 1 would mean findings
        return _fault(error, argv)


def _dispatch(argv: list[str]) -> int:
    from agentcache.lint.command.writing import escape_what_cannot_be_spelled

    escape_what_cannot_be_spelled()
    if argv[:1] == ["rule"]:
        from agentcache.lint.command.manual import rule_command

        return rule_command(argv[1:])
    if argv[:1] == ["template"]:
        from agentcache.lint.templates import template_command

        return template_command(argv[1:])
    from agentcache.lint.command.choices import choose
    from agentcache.lint.command.options import parser

    choices = choose(parser().parse_intermixed_args(argv))
    if choices.options.show_settings:
        from agentcache.lint.command.shown import show_settings

        show_settings(choices, sys.stdout)
        sys.stdout.flush()
        return _CLEAN
    if choices.options.live is not None:
        from agentcache.lint.command.server import live_command

        return live_command(choices)
    from agentcache.lint.command.run import lint_command

    return lint_command(choices)


def _fault(error: Exception, argv: list[str]) -> int:
    """What nobody expected: one line, or all of it for those who ask."""
    if _TRACEBACK in argv and sys.stderr is not None:
        traceback.print_exception(error)
    hint = "" if _TRACEBACK in argv else f" ({_TRACEBACK} shows where)"
    _say(f"error: this is a fault of the linter: {type(error).__name__}: {error}{hint}")
    return _ERROR


def _say(sentence: str) -> None:
    """One line on standard error; what names and prompts say cannot command the terminal."""
    if sys.stderr is None:
        return
    print("".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in sentence), file=sys.stderr)
