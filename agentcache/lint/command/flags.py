"""What is said of a command line that cannot be understood."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

from agentcache.lint.command.writing import note

_CHOICE = re.compile(r"invalid choice: '(?P<got>[^']*)' \(choose from (?P<known>.*)\)", re.DOTALL)
_WORD = re.compile(r"[^\s,']+")


class FlagParser(argparse.ArgumentParser):
    """The error first, with the flag that was probably meant, and where more is to be had; not a screen of usage."""

    def error(self, message: str) -> NoReturn:
        """
        Raises:
            SystemExit: always, with 2.
        """
        note(f"error: {message}{self._meant(message)}")
        note(f"usage: {self.prog} [FLAGS] ...; {self.prog} --help lists the flags")
        raise SystemExit(2)

    def _meant(self, message: str) -> str:
        """``; did you mean --page-size?`` where something known looks like what was given."""
        if choice := _CHOICE.search(message):
            pairs = [(choice["got"], _WORD.findall(choice["known"]))]
        elif message.startswith("unrecognized arguments:"):
            words = (word.partition("=")[0] for word in message.split() if word.startswith("-"))
            pairs = [(word, list(self._option_string_actions)) for word in words]
        else:
            pairs = []
        near = [match for got, known in pairs for match in difflib.get_close_matches(got, known, 1, 0.7)]
        return f"; did you mean {' and '.join(dict.fromkeys(near))}?" if near else ""
