"""Every environment variable, read once at start-up.

Upstream's variables keep their names and meanings; ours begin with `TRIO_OLLAMA_`. A value is trimmed of blanks, then
of surrounding quotes; an empty one counts as unset. A wrong value never stops the daemon: the default takes its place,
and `Settings.warnings` says so (upstream's durations are replaced silently, as upstream does). The one exception is
`OLLAMA_ORIGINS`: a mistake there could open the daemon to web pages, so it raises `SettingsError`.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from trio_ollama.durations import FOREVER, SECOND, parse_go_duration

__all__ = ["BUILT_IN_ORIGINS", "TRACE", "VARIABLES", "Host", "Settings", "SettingsError", "Variable"]

TRACE: Final = 5
"""Logging level below DEBUG: `OLLAMA_DEBUG=2`."""

MIB: Final = 1 << 20

BUILT_IN_ORIGINS: Final = (
    *(
        origin
        for name in ("localhost", "127.0.0.1", "0.0.0.0")
        for origin in (f"http://{name}", f"https://{name}", f"http://{name}:*", f"https://{name}:*")
    ),
    *("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"),
)
"""Web origins that are always allowed."""

_ORIGIN_SCHEMES: Final = (
    *("http://", "https://"),
    *("chrome-extension://", "safari-extension://", "moz-extension://", "ms-browser-extension://"),
)

_T = TypeVar("_T")

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class SettingsError(ValueError):
    """A value that must not be replaced by a default; the daemon does not start."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One line of `serve --help`: name, default as text, meaning."""

    name: str
    default: str
    help: str


VARIABLES: Final = (
    Variable("OLLAMA_HOST", "127.0.0.1:11434", "Address to listen on, and the one that the commands connect to"),
    Variable("OLLAMA_MODELS", "~/.ollama/models", "Folder of the model store"),
    Variable("OLLAMA_KEEP_ALIVE", "5m", "How long an idle model stays loaded; negative: for ever, 0: not at all"),
    Variable("OLLAMA_LOAD_TIMEOUT", "5m", "How long a load may show no progress; 0 or less: for ever"),
    Variable("OLLAMA_MAX_LOADED_MODELS", "0", "Most models loaded at once; 0: three for each GPU, at least three"),
    Variable("OLLAMA_NUM_PARALLEL", "1", "Requests that one model answers at the same time"),
    Variable("OLLAMA_MAX_QUEUE", "512", "Requests that may wait; further ones are refused (503); 0: nobody waits"),
    Variable("OLLAMA_CONTEXT_LENGTH", "0", "Context in tokens where nobody asks for one; 0: 4096 to 262144 by VRAM"),
    Variable("OLLAMA_GPU_OVERHEAD", "0", "Bytes kept free on each GPU"),
    Variable("OLLAMA_SCHED_SPREAD", "false", "Spread each model over all GPUs"),
    Variable("OLLAMA_FLASH_ATTENTION", "unset", "Flash attention on or off; unset: where the GPUs can do it"),
    Variable("OLLAMA_KV_CACHE_TYPE", "f16", "Element type of the key/value cache (f16, q8_0, q4_0, ...)"),
    Variable("OLLAMA_LLM_LIBRARY", "unset", "Use this compute backend only"),
    Variable("OLLAMA_GO_TEMPLATE", "unset", "Render prompts with the store's template (true) or the model file's"),
    Variable("OLLAMA_ORIGINS", "unset", "Comma-separated web origins that may use the API, beside the local ones"),
    Variable("OLLAMA_NOPRUNE", "false", "Keep unused blobs"),
    Variable("OLLAMA_NOHISTORY", "false", "No history file for interactive sessions"),
    Variable("OLLAMA_EDITOR", "unset", "Editor of interactive sessions"),
    Variable("OLLAMA_DEBUG", "0", "1: debug messages, 2: trace messages, too"),
    Variable("TRIO_OLLAMA_RUNNER", "auto", "auto: a llama-server if there is one, else embedded; embedded; external"),
    Variable("TRIO_OLLAMA_LLAMA_SERVER", "unset", "Path of the llama-server to use"),
    Variable("TRIO_OLLAMA_STOP_GRACE", "2s", "Time a runner has to end after the stop signal, before it is killed"),
    Variable("TRIO_OLLAMA_KILL_WAIT", "5s", "Time to wait for a killed runner's exit, before it is given up as stuck"),
    Variable("TRIO_OLLAMA_DRAIN_TIMEOUT", "10s", "Time that running requests have to finish at shutdown"),
    Variable("TRIO_OLLAMA_ABORT_TIMEOUT", "10s", "Time a runner has to confirm that it dropped a cancelled request"),
    Variable("TRIO_OLLAMA_STALL_TIMEOUT", "1m", "Time a client may read nothing, before its request is ended"),
    Variable(
        "TRIO_OLLAMA_PROGRESS_TIMEOUT", "5m", "Time a model that is to go may generate nothing, then it is killed"
    ),
    Variable("TRIO_OLLAMA_SILENCE_TIMEOUT", "10m", "Time a model may say nothing to a request; 0: for ever"),
    Variable("TRIO_OLLAMA_RECOVERY_TIMEOUT", "5s", "Longest wait for a GPU to report the memory of an ended runner"),
    Variable("TRIO_OLLAMA_MAX_OVERTAKE", "4", "Later requests that may still use a model which has to make room"),
    Variable("TRIO_OLLAMA_ABANDONED_LOAD", "abort", "A load nobody waits for any more: abort, or finish"),
    Variable("TRIO_OLLAMA_PROMPT_CACHE", "0MiB", "Memory for cached prompts in each runner; a bare number is in MiB"),
    Variable("TRIO_OLLAMA_MAX_BODY", "128MiB", "Largest JSON request body; a bare number is in bytes"),
    Variable("CUDA_VISIBLE_DEVICES", "unset", "NVIDIA GPUs to use, by number or UUID; empty: none"),
    Variable("ROCR_VISIBLE_DEVICES", "unset", "AMD GPUs to use with ROCm, by number or UUID"),
    Variable("HIP_VISIBLE_DEVICES", "unset", "AMD GPUs to use with ROCm, by number among those of the variable above"),
    Variable("GGML_VK_VISIBLE_DEVICES", "unset", "GPUs to use with Vulkan, by number"),
    Variable("OLLAMA_IGPU_ENABLE", "false", "Use integrated GPUs of ROCm and Vulkan, too"),
    Variable("XDG_CACHE_HOME", "~/.cache", "In its folder trio-ollama is kept how much memory models have taken"),
)
"""All variables in the order of `--help`; a test checks that none is missing and none idle."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where the daemon listens and clients connect. `path` is the clients' prefix: empty, or `/p`."""

    scheme: str = "http"
    host: str = "127.0.0.1"
    """A name, or an IP address without brackets; empty for all interfaces."""
    port: int = 11434
    """0 for any free one."""
    path: str = ""

    @property
    def address(self) -> str:
        """`host:port`, IPv6 in brackets; `:8080` for all interfaces."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bind_addresses(self) -> tuple[tuple[str, int], ...]:
        """`(host, port)` pairs to listen on: IPv4 and IPv6 when the host is empty (the latter may not exist)."""
        return tuple((host, self.port) for host in ((self.host,) if self.host else ("0.0.0.0", "::")))

    @property
    def base_url(self) -> str:
        """URL for clients without trailing slash; a wildcard address is reached over the loopback interface."""
        reachable = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{self.scheme}://{Host(host=reachable, port=self.port).address}{self.path}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. Durations are seconds (`math.inf`: no limit) unless the name says otherwise."""

    host: Host = Host()
    models: Path = field(default_factory=lambda: _default_models({}))
    key: Path = field(default_factory=lambda: _default_models({}).with_name("id_ed25519"))
    """The private key that signs us in at a registry; does not move with `models`."""
    keep_alive_ns: int = 300 * SECOND
    """`FOREVER` for a negative value."""
    load_timeout: float = 300.0
    max_loaded_models: int = 0
    num_parallel: int = 1
    max_queue: int = 512
    context_length: int = 0
    gpu_overhead: int = 0
    """Bytes."""
    sched_spread: bool = False
    flash_attention: bool | None = None
    kv_cache_type: str = ""
    """Lower case; empty for f16."""
    llm_library: str = ""
    go_template: bool | None = None
    origins: tuple[str, ...] = BUILT_IN_ORIGINS
    """The user's in front of the built-in ones."""
    noprune: bool = False
    nohistory: bool = False
    editor: str = ""
    debug: int = logging.INFO
    """Level for `logging`."""
    runner: str = "auto"
    llama_server: Path | None = None
    stop_grace: float = 2.0
    kill_wait: float = 5.0
    drain_timeout: float = 10.0
    abort_timeout: float = 10.0
    stall_timeout: float = 60.0
    progress_timeout: float = 300.0
    silence_timeout: float = 600.0
    """Infinite for 0, too."""
    recovery_timeout: float = 5.0
    max_overtake: int = 4
    abandoned_load: str = "abort"
    prompt_cache_mib: int = 0
    max_body: int = 128 * MIB
    """Bytes."""
    cuda_visible_devices: str | None = None
    """None shows all GPUs, an empty text none."""
    rocr_visible_devices: str | None = None
    hip_visible_devices: str | None = None
    vulkan_visible_devices: str | None = None
    igpu_enable: bool = False
    cache: Path | None = None
    """Folder for what may be lost; None: nothing is kept."""
    warnings: tuple[str, ...] = ()
    """One text for each value that was wrong and replaced; for the log."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read all of `VARIABLES`. Raises SettingsError for a wrong `OLLAMA_ORIGINS`, for nothing else."""
        read = _Reader(environ)
        models = read.text("OLLAMA_MODELS")
        llama_server = read.text("TRIO_OLLAMA_LLAMA_SERVER")
        load_timeout = read.duration("OLLAMA_LOAD_TIMEOUT", 300 * SECOND)
        keep_alive = read.duration("OLLAMA_KEEP_ALIVE", 300 * SECOND)
        return cls(
            host=read.host("OLLAMA_HOST"),
            # Absolute, because the runners are started elsewhere.
            models=Path(models).absolute() if models else _default_models(environ),
            key=_default_models(environ).with_name("id_ed25519"),
            cache=_cache(environ),
            keep_alive_ns=keep_alive if keep_alive >= 0 else FOREVER,
            load_timeout=load_timeout / SECOND if 0 < load_timeout < FOREVER else math.inf,
            max_loaded_models=read.uint("OLLAMA_MAX_LOADED_MODELS", 0),
            num_parallel=max(1, read.uint("OLLAMA_NUM_PARALLEL", 1)),
            max_queue=read.uint("OLLAMA_MAX_QUEUE", 512),
            context_length=read.uint("OLLAMA_CONTEXT_LENGTH", 0),
            gpu_overhead=read.uint("OLLAMA_GPU_OVERHEAD", 0),
            sched_spread=bool(read.boolean("OLLAMA_SCHED_SPREAD")),
            flash_attention=read.boolean("OLLAMA_FLASH_ATTENTION"),
            kv_cache_type=read.text("OLLAMA_KV_CACHE_TYPE").lower(),
            llm_library=read.text("OLLAMA_LLM_LIBRARY"),
            go_template=read.boolean("OLLAMA_GO_TEMPLATE"),
            origins=(*read.origins("OLLAMA_ORIGINS"), *BUILT_IN_ORIGINS),
            noprune=bool(read.boolean("OLLAMA_NOPRUNE")),
            nohistory=bool(read.boolean("OLLAMA_NOHISTORY")),
            editor=read.text("OLLAMA_EDITOR"),
            debug=read.level("OLLAMA_DEBUG"),
            runner=read.choice("TRIO_OLLAMA_RUNNER", ("auto", "embedded", "external")),
            llama_server=Path(llama_server).absolute() if llama_server else None,
            stop_grace=read.seconds("TRIO_OLLAMA_STOP_GRACE", 2.0),
            kill_wait=read.seconds("TRIO_OLLAMA_KILL_WAIT", 5.0),
            drain_timeout=read.seconds("TRIO_OLLAMA_DRAIN_TIMEOUT", 10.0),
            abort_timeout=read.seconds("TRIO_OLLAMA_ABORT_TIMEOUT", 10.0),
            stall_timeout=read.seconds("TRIO_OLLAMA_STALL_TIMEOUT", 60.0),
            progress_timeout=read.seconds("TRIO_OLLAMA_PROGRESS_TIMEOUT", 300.0),
            silence_timeout=read.seconds("TRIO_OLLAMA_SILENCE_TIMEOUT", 600.0) or math.inf,
            recovery_timeout=read.seconds("TRIO_OLLAMA_RECOVERY_TIMEOUT", 5.0),
            max_overtake=read.uint("TRIO_OLLAMA_MAX_OVERTAKE", 4),
            abandoned_load=read.choice("TRIO_OLLAMA_ABANDONED_LOAD", ("abort", "finish")),
            prompt_cache_mib=read.size("TRIO_OLLAMA_PROMPT_CACHE", 0, bare=MIB) // MIB,
            max_body=read.size("TRIO_OLLAMA_MAX_BODY", 128 * MIB, bare=1),
            # Not trimmed to "unset" when empty: CUDA takes the empty value for "no GPU".
            cuda_visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
            rocr_visible_devices=environ.get("ROCR_VISIBLE_DEVICES"),
            hip_visible_devices=environ.get("HIP_VISIBLE_DEVICES"),
            vulkan_visible_devices=environ.get("GGML_VK_VISIBLE_DEVICES"),
            igpu_enable=bool(read.boolean("OLLAMA_IGPU_ENABLE")),
            warnings=tuple(read.warnings),
        )


class _Reader:
    """Reads variables by the rules of their kinds, and notes what was wrong."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.warnings: list[str] = []

    def text(self, name: str) -> str:
        return self._environ.get(name, "").strip().strip("\"'")

    def boolean(self, name: str) -> bool | None:
        """None if unset; any text that is no known form of false counts as true."""
        text = self.text(name)
        return text not in _FALSE if text else None

    def uint(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch("[0-9]{1,20}", text) or int(text) >= 1 << 64:
            return self._replaced(name, default)
        return int(text)

    def duration(self, name: str, default: int) -> int:
        """Nanoseconds; a Go duration or whole seconds. A wrong value becomes the default silently, as upstream."""
        value = self._nanoseconds(name)
        return default if value is None else value

    def seconds(self, name: str, default: float) -> float:
        """As `duration`, for our own variables: seconds, never negative, and a wrong value is reported."""
        if not self.text(name):
            return default
        value = self._nanoseconds(name)
        if value is None or value < 0:
            return self._replaced(name, default)
        return value / SECOND if value < FOREVER else math.inf

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices` in any case; the first is the default."""
        text = self.text(name).lower()
        if text and text not in choices:
            return self._replaced(name, choices[0])
        return text or choices[0]

    def size(self, name: str, default: int, bare: int) -> int:
        """Bytes: a whole number, in units of `bare` or with B, K, M or G behind it (`kB`, `KiB`: all 1024-fold)."""
        text = self.text(name)
        if not text:
            return default
        parts = re.fullmatch(r"([0-9]{1,15})\s*(?:([kmg])(?:i?b)?|(b))?", text.lower())
        if parts is None:
            return self._replaced(name, default)
        if parts[2]:
            return int(parts[1]) << {"k": 10, "m": 20, "g": 30}[parts[2]]
        return int(parts[1]) * (1 if parts[3] else bare)

    def level(self, name: str) -> int:
        """Logging level: a true value is DEBUG, 2 and more TRACE; negative numbers say less, as upstream."""
        text = self.text(name)
        if text in _TRUE:
            return logging.DEBUG
        if not re.fullmatch("-?[0-9]{1,18}", text):
            return logging.INFO
        return {0: logging.INFO, 1: logging.DEBUG, 2: TRACE, -1: logging.WARNING, -2: logging.ERROR}[
            max(-2, min(int(text), 2))
        ]

    def origins(self, name: str) -> tuple[str, ...]:
        origins = tuple(origin for part in self.text(name).split(",") if (origin := part.strip()))
        for origin in origins:
            stars = origin.count("*")
            if stars > 1:
                raise SettingsError(f"{name}: only one * is allowed in an origin: {origin!r}")
            if not stars and not origin.startswith(_ORIGIN_SCHEMES):
                raise SettingsError(
                    f"{name}: bad origin {origin!r}: origins must contain '*' or start with one of "
                    + ", ".join(_ORIGIN_SCHEMES)
                )
        return origins

    def host(self, name: str) -> Host:
        """`[scheme://]host[:port][/path]`; the scheme sets the default port."""
        text = self.text(name).strip()
        scheme, separator, rest = text.partition("://")
        if not separator:
            scheme, rest = "http", text
            if text == "ollama.com":
                scheme, rest = "https", "ollama.com:443"
        default_port = {"http": 80, "https": 443}.get(scheme, 11434) if separator else 11434
        if scheme not in ("http", "https"):
            scheme = self._replaced(name, "http", what="scheme")
        address, _, path = rest.partition("/")
        host, port = _split_address(address)
        if ":" in host and not _is_ip(host):
            host = self._replaced(name, "127.0.0.1", what="host")
            port = None
        number = default_port
        if port is not None:
            if re.fullmatch(r"\+?[0-9]{1,9}", port) and int(port) <= 65535:
                number = int(port)
            else:
                number = self._replaced(name, default_port, what="port")
        path = path.strip("/")
        return Host(scheme, host, number, f"/{path}" if path else "")

    def _nanoseconds(self, name: str) -> int | None:
        text = self.text(name)
        try:
            return parse_go_duration(text)
        except ValueError:
            if not re.fullmatch("[-+]?[0-9]{1,19}", text):
                return None
            return max(-FOREVER, min(int(text) * SECOND, FOREVER))

    def _replaced(self, name: str, default: _T, what: str = "value") -> _T:
        self.warnings.append(f"{name}: invalid {what} in {self.text(name)!r}, using {default}")
        return default


def _default_models(environ: Mapping[str, str]) -> Path:
    # Unlike `Path.home`, `expanduser` does not raise for a user without a home.
    return Path(environ.get("HOME") or os.path.expanduser("~")) / ".ollama" / "models"


def _cache(environ: Mapping[str, str]) -> Path | None:
    """As the XDG base directories say; None for a user without a home."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(environ.get("HOME") or os.path.expanduser("~")) / ".cache"
    return base / "trio-ollama" if base.is_absolute() else None


def _split_address(address: str) -> tuple[str, str | None]:
    """Host without brackets (the default one if `address` is empty) and port text, None where there is no port."""
    bare = address.strip("[]")
    if _is_ip(bare):
        return str(ipaddress.ip_address(bare)), None
    if address.count(":") == 1 or address.startswith("["):
        host, separator, port = address.rpartition(":")
        if separator and not host.endswith(":"):
            return host.removeprefix("[").removesuffix("]"), port
    return address or "127.0.0.1", None


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
