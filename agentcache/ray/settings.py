"""What ``agentcache up`` and ``build_app`` can be told beside the settings of a server: how many replicas, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agentcache.settings import Settings, parse_size
from agentcache.settings_reading import DEFAULT_CONFIG, in_words, read_table

CLUSTER_SIZES = ("object_store_memory", "session_memory")
"""Settings in bytes, which may be given with a unit."""

SLOWEST_TOKEN_S = 0.1
"""What a token of the longest stream is taken to need, where nobody says how long streams are."""
_DRAIN_S = (60.0, 1800.0)
_LONGEST = 8192
"""Tokens, where ``max_model_len`` is the model's own and the model is not read yet."""
_SPARE = 64
"""Requests that a replica may have beside those that run and wait: looks at it, and what does not generate."""


class ClusterSettings(BaseModel):
    """Times in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    replicas: int | None = Field(None, ge=1, le=1024, description="engine replicas (default: 1)")
    min_replicas: int | None = Field(None, ge=1, le=1024, description="autoscaling: never fewer replicas than this")
    max_replicas: int | None = Field(None, ge=1, le=1024, description="autoscaling: never more replicas than this")
    target_ongoing_requests: float | None = Field(
        None, gt=0, description="autoscaling: requests that a replica should have at once (default: 8)"
    )
    upscale_delay_s: float = Field(
        10.0, ge=0, le=3600, description="autoscaling: seconds of load before a replica is added"
    )
    downscale_delay_s: float = Field(
        300.0, ge=0, le=86400, description="autoscaling: seconds of little load before a replica is taken away"
    )
    ingress_replicas: int = Field(1, ge=1, le=64, description="processes that read requests and route them")
    max_ongoing_requests: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="requests that a replica may have at once (default: --max-running, --max-waiting and some more)",
    )
    cpus_per_replica: float | None = Field(
        None, ge=0, le=1024, description="CPUs that Ray reserves for a replica (default: its --threads)"
    )
    gpus_per_replica: float = Field(0, ge=0, le=64, description="GPUs that Ray reserves for a replica")
    drain_timeout_s: float | None = Field(
        None,
        ge=1,
        le=86400,
        description="seconds that streams may go on when a replica ends (default: 0.1 a token of --max-model-len, "
        "at least 60, at most 1800)",
    )
    assign_timeout_s: float = Field(
        10.0, gt=0, le=3600, description="seconds that a request waits for a replica that can take it, before a 503"
    )
    start_timeout_s: float = Field(
        1800.0, gt=0, le=86400, description="seconds that the first replicas may take to load their model"
    )
    health_check_period_s: float = Field(5.0, gt=0, le=3600, description="seconds between two looks at a replica")
    health_check_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="seconds that a look may take; after three that fail a replica is replaced"
    )
    ray_address: str | None = Field(
        None, min_length=1, description="cluster to join, such as 10.0.0.1:6379 or auto (default: one on this machine)"
    )
    object_store_memory: int = Field(
        200 * 2**20, ge=80 * 2**20, description="bytes of shared memory for a cluster on this machine, such as 1GiB"
    )
    session_memory: int = Field(
        256 * 2**20,
        ge=2**20,
        description="bytes for sessions that are kept for other replicas where there is no --store",
    )

    @field_validator(*CLUSTER_SIZES, mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return parse_size(value)

    @model_validator(mode="after")
    def _combinations(self) -> ClusterSettings:
        if self.scales and self.replicas is not None:
            raise ValueError(
                f"--replicas {self.replicas} is a fixed number, and --min-replicas and --max-replicas are bounds: give one"
            )
        if self.min_replicas is not None and self.max_replicas is None:
            raise ValueError(f"--min-replicas {self.min_replicas} without --max-replicas: expected both")
        if self.max_replicas is not None and (self.min_replicas or 1) > self.max_replicas:
            raise ValueError(f"--min-replicas {self.min_replicas} is more than --max-replicas {self.max_replicas}")
        if self.target_ongoing_requests is not None and not self.scales:
            raise ValueError(
                f"--target-ongoing-requests {self.target_ongoing_requests:g} without --max-replicas: nothing is scaled"
            )
        return self

    @property
    def scales(self) -> bool:
        """Whether the number of replicas follows the load."""
        return self.min_replicas is not None or self.max_replicas is not None

    @property
    def least_replicas(self) -> int:
        """Replicas that there should be at any time, and when it begins."""
        return self.min_replicas or 1 if self.scales else self.replicas or 1

    @property
    def most_replicas(self) -> int:
        return self.max_replicas or self.least_replicas

    def ongoing(self, settings: Settings) -> int:
        """Requests that a replica of ``settings`` may have: so many that the engine itself says when its queue is full."""
        return self.max_ongoing_requests or settings.max_running + settings.max_waiting + _SPARE

    def drain_s(self, settings: Settings) -> float:
        """How long streams of ``settings`` may go on when a replica ends."""
        if self.drain_timeout_s is not None:
            return self.drain_timeout_s
        shortest, longest = _DRAIN_S
        return min(max(shortest, math.ceil((settings.max_model_len or _LONGEST) * SLOWEST_TOKEN_S)), longest)


def checked_cluster(fields: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> ClusterSettings:
    """
    Args:
        origins: of each field that was set elsewhere than on the command line, where.

    Raises:
        SettingsError: with one sentence a fault, each naming the flag and what was expected.
    """
    try:
        return ClusterSettings(**fields)
    except ValidationError as error:
        raise in_words(error, origins) from None


def load_cluster_settings(overrides: Mapping[str, Any], config: Path | None = None) -> ClusterSettings:
    """The table ``[up]`` of ``agentcache.toml`` (or ``config``), and ``overrides`` (command line), which win.

    Raises:
        SettingsError
    """
    table = read_table(config, "up")
    given = {name: value for name, value in overrides.items() if value is not None}
    origins = {name: f"{config or DEFAULT_CONFIG}: [up] " for name in table if name not in given}
    return checked_cluster({**table, **given}, origins)
