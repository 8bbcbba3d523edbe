"""Access lines of one replica among several: the same lines, with its name at the end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from agentcache.server.watch.access_log import access_log_on_stderr, access_logger


class ReplicaLines(logging.Formatter):
    """
    Args:
        style: how the lines are written that it is given, ``text`` or ``json``.
    """

    def __init__(self, replica: str, style: str) -> None:
        super().__init__()
        self._replica = replica
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        line = record.getMessage()
        if self._json:
            return json.dumps({**json.loads(line), "replica": self._replica})
        return f"{line} replica={self._replica}"


@contextmanager
def log_as_replica(replica: str, style: str) -> Iterator[None]:
    """While it lasts, access lines go to standard error."""
    with access_log_on_stderr():
        for handler in access_logger.handlers:
            handler.setFormatter(ReplicaLines(replica, style))
        yield
