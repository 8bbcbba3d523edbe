"""Metrics of several replicas as one exposition: every sample gets a label that says whose it is.

::

    # TYPE agentcache_steps_total counter       once, from whoever comes first
    agentcache_steps_total{replica="a1"} 12.0   the samples of a family stand together, as the format wants it
    agentcache_steps_total{replica="b2"} 7.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?")


class _Family:
    def __init__(self) -> None:
        self.about: list[str] = []
        self.samples: list[str] = []


def merged_metrics(texts: Mapping[str, str], *, openmetrics: bool = False) -> str:
    """
    Args:
        texts: of each replica, in Prometheus' or OpenMetrics' text format, by its name.
        openmetrics: all are in the latter, which ends with a mark.
    """
    families: dict[str, _Family] = {}
    for replica, text in texts.items():
        _add(families, replica, text)
    lines = [line for family in families.values() for line in (*family.about, *family.samples)]
    return "\n".join([*lines, *(["# EOF"] if openmetrics else [])]) + "\n"


def _add(families: dict[str, _Family], replica: str, text: str) -> None:
    family = _Family()
    mine: set[str] = set()
    """Families that this text began: their description is told once."""
    for line in text.splitlines():
        if line.startswith("# EOF") or not line.strip():
            continue
        if line.startswith("#"):
            name = line.split(" ", 3)[2]
            if name not in families:
                families[name] = _Family()
                mine.add(name)
            family = families[name]
            if name in mine:
                family.about.append(line)
        else:
            family.samples.append(_labelled(line, replica))


def _labelled(sample: str, replica: str) -> str:
    match = _SAMPLE.match(sample)
    if match is None:
        return sample
    name, rest = match[1], sample[match.end() :]
    if match[2] is None:
        return f'{name}{{replica="{replica}"}}{rest}'
    separator = "" if rest.startswith("}") else ","
    return f'{name}{{replica="{replica}"{separator}{rest}'
