"""One frozen, validated settings object; the only place that reads the environment and ``agentcache.toml``.

Precedence, strongest first: command line, environment (``AGENTCACHE_API_KEYS``, ``AGENTCACHE_ADMIN_KEYS``,
``AGENTCACHE_HOME``), ``agentcache.toml``, defaults.  ``AGENTCACHE_API_KEY`` is a client's.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from agentcache.errors import SettingsError
from agentcache.replica_ids import NAME
from agentcache.settings_reading import DEFAULT_CONFIG, flag_of, in_words, read_table

REPEATED = ("model_names", "api_keys", "admin_keys", "cors_origins")
"""Settings of several values; the flag is the singular, and may be given again."""

SIZES = ("kv_memory", "max_body", "disk_size")
"""Settings in bytes, which may be given with a unit."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.\-\[\]:]+(?<!/)")
STORE_URL = "a URL such as redis://host:6379/0, rediss://…, unix://…, file:///folder"
_STORES = ("redis", "rediss", "valkey", "valkeys", "unix", "file")
_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_WRITTEN = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("", 1))


def parse_size(value: int | str) -> int:
    """Bytes from ``2GiB``, ``512MB`` or a plain number.

    Raises:
        ValueError: no such size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(value))
    if not match or match[2].lower() not in _UNITS:
        raise ValueError(f"got {value!r}, expected a size such as 2GiB, 512MB or 1048576")
    return math.floor(float(match[1]) * _UNITS[match[2].lower()])


def size_text(size: int) -> str:
    """Bytes as people write them, exactly: what ``parse_size`` makes ``size`` of."""
    name, unit = next((name, unit) for name, unit in _WRITTEN if size % unit == 0)
    return f"{size // unit}{name}"


def default_home() -> Path:
    """``AGENTCACHE_HOME``, or the platform's cache folder."""
    if home := os.environ.get("AGENTCACHE_HOME"):
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "agentcache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "agentcache"


def client_api_key() -> str | None:
    """``AGENTCACHE_API_KEY``: the key that this machine's commands show to a server; ``None`` where it is not set or empty."""
    return os.environ.get("AGENTCACHE_API_KEY", "").strip() or None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent
        return False


class Settings(BaseModel):
    """Everything ``agentcache serve`` can be told.  Lengths are in tokens, sizes in bytes, times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # What is served
    model: str = Field("smollm2", description="folder in Hugging Face layout, .gguf file, hub id, or smollm2")
    model_names: tuple[str, ...] = Field((), description="another name that requests may call the model by")
    load_format: Literal["auto", "dummy"] = Field("auto", description="dummy: random weights from config.json")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where the model runs")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="auto: float32 on a CPU")
    weights: Literal["native", "int8", "int4"] = Field("native", description="int8, int4: quantised, for CPUs")
    weights_policy: Literal["exact", "fast"] = Field(
        "exact", description="quantised prompts as replies are computed, bit for bit, or faster"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads of the model; default: one a core")

    # Pages
    page_size: int = Field(16, ge=1, le=1024, description="tokens a page")
    num_pages: int | None = Field(None, ge=1, description="pages in the pool (or --kv-memory)")
    kv_memory: int | None = Field(None, ge=1, description="bytes for keys and values, such as 2GiB (or --num-pages)")
    max_model_len: int | None = Field(None, ge=2, description="longest sequence; default: the model's own")
    namespace_pages: int | None = Field(
        None, ge=1, description="pages that one namespace (a key, a salt) may keep cached"
    )
    prefix_cache: bool = Field(True, description="reuse pages across requests")

    # Steps
    prefill_chunk: int = Field(512, ge=1, description="token budget of one step")
    max_running: int = Field(64, ge=1, le=4096, description="sequences that run at once")
    max_waiting: int = Field(1024, ge=1, description="requests that may wait; beyond it 429")
    schedule: Literal["hrrn", "fcfs", "longest-prefix"] = Field("hrrn", description="who is admitted first")
    max_overtakes: int = Field(12, ge=0, description="later requests admitted before a waiting one, per step it needs")
    batch_invariant: bool = Field(
        False, description="on a GPU: a reply has the same bits in any company and cache state, as on a CPU; slower"
    )
    look_ahead: int = Field(64, ge=1, le=65536, description="waiting requests that one step looks up and tries")
    preempt: Literal["recompute", "swap"] = Field(
        "recompute", description="what happens to pages when they run out; swap needs --host-pages"
    )

    # Tiers and neighbours
    host_pages: int = Field(0, ge=0, description="pages of the host tier")
    disk_dir: Path | None = Field(None, description="folder of the disk tier: prompts stay warm across restarts")
    disk_size: int = Field(8 * 2**30, ge=2**20, description="bytes that the disk tier may take, such as 8GiB")
    store: str | None = Field(
        None,
        repr=False,  # it may hold a password
        description="page store that servers share, such as redis://127.0.0.1:6379/0 or file:///mnt/pages",
    )
    store_optional: bool = Field(
        False, description="serve although the store or the events endpoint cannot be reached; /health says so"
    )
    store_sessions: bool = Field(
        True, description="keep sessions in the store too, so that another server can go on with them"
    )
    store_timeout_s: float = Field(
        2.0, gt=0, le=60, description="seconds that a request waits for the store at most; mostly far less is allowed"
    )
    replica: str | None = Field(
        None, description="name of this server among others (a-z, 0-9); ids that it gives out end with it"
    )
    kv_events: str | None = Field(
        None, description="endpoint for page events in vLLM's format, such as tcp://*:5557 (bound) or tcp://router:5557"
    )
    kv_events_topic: str = Field("", description="topic that page events are published under")
    kv_events_format: Literal["maps", "arrays"] = Field(
        "maps",
        description="how page events are written: maps (as vLLM from 0.24 on), or arrays for readers older than that",
    )
    kv_events_replay: str | None = Field(
        None, description="endpoint that answers with page events of late, such as tcp://*:5558"
    )
    public_prefix: Path | None = Field(None, description="file whose pages every key may share")

    # HTTP
    host: str = Field("127.0.0.1", description="address to bind")
    port: int = Field(8100, ge=0, le=65535, description="port to bind; 0 picks a free one")
    api_keys: tuple[SecretStr, ...] = Field((), description="keys that clients may use; none: open")
    admin_keys: tuple[SecretStr, ...] = Field(
        (), description="keys that may also see metrics and the whole server; default: a single API key may"
    )
    allow_keyless: bool = Field(
        False, description="without keys, serve other machines, and under any name that they ask for"
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="web page that may call the server, such as https://app.example; * for every one"
    )
    max_body: int = Field(32 * 2**20, ge=1024, description="largest request body, such as 32MiB")
    max_connections: int = Field(1024, ge=1, le=65536, description="clients connected at once; beyond it 503")
    head_timeout_s: float = Field(10.0, gt=0, le=3600, description="seconds for the headers of a request to arrive")
    body_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="seconds for a body to arrive, and one more for each 16 KiB of it"
    )
    send_timeout_s: float = Field(
        300.0, gt=0, le=86400, description="seconds in which a client must take some of what waits for it"
    )
    keep_alive_s: float = Field(10.0, gt=0, le=3600, description="seconds after which a silent stream says it is alive")
    tool_parser: Literal["auto", "hermes", "llama", "mistral", "json"] = Field("auto", description="tool-call format")
    allow_special_tokens: bool = Field(False, description="let user text become control tokens")
    enable_test_hooks: bool = Field(False, description="serve /debug/*")

    # Watching
    access_log: Literal["off", "text", "json"] = Field("text", description="a line for each request, on stderr")
    otel: str | None = Field(
        None,
        description="send OpenTelemetry traces to this OTLP/HTTP collector; 'default': where the OTEL_EXPORTER_OTLP_* "
        "variables say, or http://localhost:4318",
    )

    trace: Path | None = Field(
        None, description="file to which each answered prompt is appended, text and token ids, for agentcache lint"
    )

    home: Path = Field(default_factory=default_home, description="converted models and snapshots")

    @field_validator(*SIZES, mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return value if value is None else parse_size(value)

    @field_validator("otel", mode="before")
    @classmethod
    def _collector(cls, value: Any) -> Any:
        if isinstance(value, bool):  # as agentcache.toml may have it
            return "default" if value else None
        if value is not None and value != "default" and not re.match(r"https?://[^/\s]", str(value)):
            raise ValueError(
                f"got {value!r}, expected the URL of a collector, such as http://127.0.0.1:4318, or 'default'"
            )
        return value

    @field_validator("otel")
    @classmethod
    def _has_otel(cls, value: str | None) -> str | None:
        if value is not None and not _importable("opentelemetry.exporter.otlp.proto.http"):
            raise ValueError(
                f"got {value!r}, and the packages for traces are not installed: pip install '.[otel]' in the folder of "
                "agentcache's source"
            )
        return value

    @field_validator("store")
    @classmethod
    def _known_store(cls, value: str | None) -> str | None:
        scheme, separator, rest = (value or "").partition("://")
        if value is not None and (scheme not in _STORES or not separator or not rest):
            shown = re.sub(r"//.*@", "//***@", value)
            raise ValueError(f"got {shown!r}, expected {STORE_URL}")
        return value

    @field_validator("kv_events")
    @classmethod
    def _has_events(cls, value: str | None) -> str | None:
        if value is not None and not (_importable("zmq") and _importable("msgpack")):
            raise ValueError(
                f"got {value!r}, and the packages for page events are not installed: pip install '.[events]' in the folder of "
                "agentcache's source"
            )
        return value

    @field_validator("replica")
    @classmethod
    def _replica_name(cls, value: str | None) -> str | None:
        if value is not None and not NAME.fullmatch(value):
            raise ValueError(f"got {value!r}, expected 1 to 32 of the characters a-z and 0-9")
        return value

    @field_validator("trace")
    @classmethod
    def _file_to_write(cls, value: Path | None) -> Path | None:
        if value is not None and (not value.parent.is_dir() or (value.exists() and not value.is_file())):
            raise ValueError(f"got {str(value)!r}, expected a file in a folder that there is")
        return value

    @field_validator("api_keys", "admin_keys")
    @classmethod
    def _usable_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(not key.get_secret_value() or key.get_secret_value().strip() != key.get_secret_value() for key in keys):
            raise ValueError("got a key that is empty or has white space around it, expected one that clients can send")
        return keys

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"got {origin!r}, expected an origin such as https://app.example:8443, or *")
        return origins

    @model_validator(mode="after")
    def _combinations(self) -> Settings:
        if self.num_pages is not None and self.kv_memory is not None:
            raise ValueError(
                f"--num-pages {self.num_pages} and --kv-memory {self.kv_memory} both size the pool: give one"
            )
        if self.device == "cpu" and self.dtype == "float16":
            raise ValueError("--device cpu and --dtype float16: CPUs are served in float32 or bfloat16")
        self._check_weights()
        self._check_exposure()
        if self.prefill_chunk < self.page_size:
            raise ValueError(
                f"--prefill-chunk {self.prefill_chunk} is smaller than --page-size {self.page_size}: "
                "a step must be able to fill a page"
            )
        if self.kv_events is None and self.kv_events_replay is not None:
            raise ValueError(
                f"--kv-events-replay {self.kv_events_replay} without --kv-events: there are no events to answer with"
            )
        return self

    def _check_weights(self) -> None:
        if self.weights == "native":
            if self.weights_policy != "exact":
                raise ValueError(
                    f"--weights-policy {self.weights_policy} is about quantised weights, and --weights is native"
                )
            return
        if self.device == "cuda":
            raise ValueError(f"--weights {self.weights} and --device cuda: quantised weights are served on CPUs only")
        if self.dtype not in {"auto", "float32"}:
            raise ValueError(
                f"--weights {self.weights} and --dtype {self.dtype}: beside quantised weights everything is float32"
            )

    def _check_exposure(self) -> None:
        """Without a key nothing but the address keeps strangers out, so that address is this machine's own."""
        if self.keyed or self.allow_keyless:
            return
        if not is_loopback(self.host):
            raise ValueError(
                f"--host {self.host} without a key serves whoever reaches that address: give an --api-key, or "
                "--allow-keyless if that is meant"
            )
        if "*" in self.cors_origins:
            raise ValueError(
                "--cors-origin * without a key lets every web page that is open on this machine use the server: give an "
                "--api-key, or --allow-keyless if that is meant"
            )

    @property
    def keyed(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys or self.admin_keys)

    def keys(self) -> tuple[str, ...]:
        """The API keys in clear, for the one place that compares them."""
        return tuple(key.get_secret_value() for key in self.api_keys)

    def operator_keys(self) -> tuple[str, ...]:
        """In clear, the keys that see the whole server: the admin keys, or a single API key where there are none."""
        admins = tuple(key.get_secret_value() for key in self.admin_keys)
        keys = self.keys()
        return admins or (keys if len(set(keys)) == 1 else ())


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's own and no other machine can be meant by it."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def load_settings(overrides: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Merge ``agentcache.toml`` (or ``config``), the environment and ``overrides`` (command line).

    Raises:
        SettingsError: with one sentence a fault, each naming the field and what was expected.
    """
    merged: dict[str, Any] = _read_toml(config)
    origins = dict.fromkeys(merged, f"{config or DEFAULT_CONFIG}: ")
    for name in ("api_keys", "admin_keys"):
        variable = f"AGENTCACHE_{name.upper()}"
        if env_keys := os.environ.get(variable):
            merged[name] = tuple(key.strip() for key in env_keys.split(",") if key.strip())
            if not merged[name]:  # whoever sets it does not mean an open server
                raise SettingsError(f"{variable}: got no key, expected keys separated by commas")
            origins[name] = f"{variable}: "
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    # A pool sized on the command line replaces one sized in the file, whichever of the two ways either used.
    if {"num_pages", "kv_memory"} & given.keys():
        merged.pop("num_pages", None)
        merged.pop("kv_memory", None)
    merged.update(given)
    origins.update(dict.fromkeys(given, ""))
    return checked_settings(merged, origins)


def checked_settings(fields: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> Settings:
    """Settings of these fields and defaults alone.

    Args:
        origins: what is said before a field's flag, such as the file that it comes from.

    Raises:
        SettingsError: as ``load_settings``.
    """
    try:
        return Settings(**fields)
    except ValidationError as error:
        raise in_words(error, origins, flag=_flag, secret=("api_keys", "admin_keys")) from None


def _read_toml(config: Path | None) -> dict[str, Any]:
    fields = read_table(config, "serve")
    for name in REPEATED:
        flag = name.removesuffix("s")
        if flag in fields and name not in fields:  # as the flag is spelled
            given = fields.pop(flag)
            fields[name] = (given,) if isinstance(given, str) else given
    return fields


def _flag(name: str) -> str:
    return flag_of(name.removesuffix("s") if name in REPEATED else name)
