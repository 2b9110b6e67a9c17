"""Environment variables: kinds, defaults, what happens to wrong values."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trio_ollama.durations import FOREVER, SECOND
from trio_ollama.settings import BUILT_IN_ORIGINS, TRACE, VARIABLES, Host, Settings, SettingsError


def parse(**environ: str) -> Settings:
    return Settings.from_environment({"HOME": "/home/x", **environ})


class Recorder(Mapping[str, str]):
    """An empty environment that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_table_of_variables_is_complete() -> None:
    environ = Recorder()
    Settings.from_environment(environ)
    names = [variable.name for variable in VARIABLES]
    assert len(names) == len(set(names))
    assert environ.asked - {"HOME"} == set(names)
    assert all(variable.help and variable.default for variable in VARIABLES)


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = parse()
    assert settings == dataclasses.replace(
        Settings(),
        models=Path("/home/x/.ollama/models"),
        key=Path("/home/x/.ollama/id_ed25519"),
        cache=Path("/home/x/.cache/trio-ollama"),
    )
    assert settings.keep_alive_ns == 300 * SECOND
    assert settings.load_timeout == 300
    assert settings.max_queue == 512
    assert settings.num_parallel == 1
    assert (settings.stop_grace, settings.kill_wait, settings.drain_timeout) == (2, 5, 10)
    assert (settings.abort_timeout, settings.stall_timeout, settings.progress_timeout) == (10, 60, 300)
    assert settings.silence_timeout == 600
    assert parse(TRIO_OLLAMA_SILENCE_TIMEOUT="0").silence_timeout == math.inf
    assert (settings.recovery_timeout, settings.max_overtake, settings.abandoned_load) == (5, 4, "abort")
    assert settings.max_body == 128 * 1024 * 1024
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("", Host()),
        ("  ''  ", Host()),
        ("0.0.0.0", Host(host="0.0.0.0")),
        ("1.2.3.4", Host(host="1.2.3.4")),
        ("1.2.3.4:1234", Host(host="1.2.3.4", port=1234)),
        (":8080", Host(host="", port=8080)),
        ("h", Host(host="h")),
        ("h:0", Host(host="h", port=0)),
        ("http://h", Host(host="h", port=80)),
        ("https://h", Host("https", "h", 443)),
        ("https://h:1", Host("https", "h", 1)),
        ("http://", Host(port=80)),
        ("ollama.com", Host("https", "ollama.com", 443)),
        ("https://ollama.com", Host("https", "ollama.com", 443)),
        ("h:1/p", Host(host="h", port=1, path="/p")),
        ("https://h/p/q/", Host("https", "h", 443, "/p/q")),
        ("::1", Host(host="::1")),
        ("[::1]", Host(host="::1")),
        ("[::1]:8080", Host(host="::1", port=8080)),
        ("[::]:8080", Host(host="::", port=8080)),
        ("http://[::1]/p", Host(host="::1", port=80, path="/p")),
        ('"h:1"', Host(host="h", port=1)),
        (" 'h:1' ", Host(host="h", port=1)),
    ],
)
def test_host_grammar(text: str, host: Host) -> None:
    settings = parse(OLLAMA_HOST=text)
    assert settings.host == host
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("text", "host", "what"),
    [
        ("h:65536", Host(host="h"), "port"),
        ("h:-1", Host(host="h"), "port"),
        ("h:x", Host(host="h"), "port"),
        ("h:", Host(host="h"), "port"),
        ("http://h:99999", Host(host="h", port=80), "port"),
        ("[::1]:x", Host(host="::1"), "port"),
        ("h:1:2", Host(), "host"),
        ("ftp://h", Host(host="h"), "scheme"),
    ],
)
def test_a_wrong_host_is_replaced_with_a_warning(text: str, host: Host, what: str) -> None:
    settings = parse(OLLAMA_HOST=text)
    assert settings.host == host
    [warning] = settings.warnings
    assert warning.startswith(f"OLLAMA_HOST: invalid {what} in '{text}'")


@pytest.mark.parametrize(
    ("text", "address", "binds", "url"),
    [
        ("", "127.0.0.1:11434", [("127.0.0.1", 11434)], "http://127.0.0.1:11434"),
        ("0.0.0.0", "0.0.0.0:11434", [("0.0.0.0", 11434)], "http://127.0.0.1:11434"),
        (":8080", ":8080", [("0.0.0.0", 8080), ("::", 8080)], "http://127.0.0.1:8080"),
        ("[::]:1", "[::]:1", [("::", 1)], "http://[::1]:1"),
        ("::1", "[::1]:11434", [("::1", 11434)], "http://[::1]:11434"),
        ("http://h", "h:80", [("h", 80)], "http://h:80"),
        ("h:1/p", "h:1", [("h", 1)], "http://h:1/p"),
    ],
)
def test_addresses_of_servers_and_clients(text: str, address: str, binds: list[tuple[str, int]], url: str) -> None:
    host = parse(OLLAMA_HOST=text).host
    assert host.address == address
    assert list(host.bind_addresses) == binds
    assert host.base_url == url


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "t", "T", "TRUE", "true", "True", "yes", "off", "2", '"1"')),
        *((text, False) for text in ("0", "f", "F", "FALSE", "false", "False", " 0 ", "'false'")),
        ("", None),
        ("   ", None),
    ],
)
def test_booleans(text: str, value: bool | None) -> None:
    settings = parse(
        OLLAMA_FLASH_ATTENTION=text, OLLAMA_GO_TEMPLATE=text, OLLAMA_SCHED_SPREAD=text, OLLAMA_NOPRUNE=text
    )
    assert settings.flash_attention is value
    assert settings.go_template is value
    assert settings.sched_spread is bool(value)
    assert settings.noprune is bool(value)


def test_whole_numbers() -> None:
    settings = parse(
        OLLAMA_MAX_QUEUE="0",
        OLLAMA_MAX_LOADED_MODELS=" 7 ",
        OLLAMA_CONTEXT_LENGTH="'8192'",
        OLLAMA_GPU_OVERHEAD=str((1 << 64) - 1),
        OLLAMA_NUM_PARALLEL="0",
        TRIO_OLLAMA_MAX_OVERTAKE="0",
    )
    assert settings.max_queue == 0
    assert settings.max_loaded_models == 7
    assert settings.context_length == 8192
    assert settings.gpu_overhead == (1 << 64) - 1
    assert settings.num_parallel == 1  # never less
    assert settings.max_overtake == 0
    assert settings.warnings == ()


@pytest.mark.parametrize("text", ["-1", "+1", "1.5", "1_0", "x", "0x10", "١", str(1 << 64), "9" * 5000])
def test_a_wrong_whole_number_is_replaced_with_a_warning(text: str) -> None:
    settings = parse(OLLAMA_MAX_QUEUE=text)
    assert settings.max_queue == 512
    assert [warning.split(":")[0] for warning in settings.warnings] == ["OLLAMA_MAX_QUEUE"]


@pytest.mark.parametrize(
    ("text", "keep_alive", "load_timeout"),
    [
        ("90s", 90 * SECOND, 90.0),
        ("1h30m", 5400 * SECOND, 5400.0),
        ("7", 7 * SECOND, 7.0),
        ("0", 0, math.inf),
        ("-1", FOREVER, math.inf),
        ("-1m", FOREVER, math.inf),
        ("300ms", 300_000_000, 0.3),
        ("9999999999999999999", FOREVER, math.inf),
        ("", 300 * SECOND, 300.0),
        ("soon", 300 * SECOND, 300.0),
        ("1.5", 300 * SECOND, 300.0),
        ("1d", 300 * SECOND, 300.0),
    ],
)
def test_upstreams_durations_are_replaced_silently(text: str, keep_alive: int, load_timeout: float) -> None:
    settings = parse(OLLAMA_KEEP_ALIVE=text, OLLAMA_LOAD_TIMEOUT=text)
    assert settings.keep_alive_ns == keep_alive
    assert settings.load_timeout == load_timeout
    assert settings.warnings == ()


def test_our_durations() -> None:
    settings = parse(TRIO_OLLAMA_STOP_GRACE="500ms", TRIO_OLLAMA_KILL_WAIT="3", TRIO_OLLAMA_STALL_TIMEOUT="9999999h")
    assert (settings.stop_grace, settings.kill_wait, settings.stall_timeout) == (0.5, 3.0, math.inf)
    assert settings.warnings == ()


@pytest.mark.parametrize("text", ["-1s", "-1", "soon"])
def test_our_wrong_durations_are_reported(text: str) -> None:
    settings = parse(TRIO_OLLAMA_DRAIN_TIMEOUT=text)
    assert settings.drain_timeout == 10.0
    assert len(settings.warnings) == 1


@pytest.mark.parametrize(
    ("text", "level"),
    [
        *(("", logging.INFO), ("0", logging.INFO), ("false", logging.INFO), ("loud", logging.INFO)),
        *(("1", logging.DEBUG), ("true", logging.DEBUG), ("2", TRACE), ("9", TRACE)),
        *(("-1", logging.WARNING), ("-2", logging.ERROR), ("-9", logging.ERROR)),
    ],
)
def test_debug_levels(text: str, level: int) -> None:
    assert parse(OLLAMA_DEBUG=text).debug == level


def test_the_users_origins_come_first() -> None:
    settings = parse(OLLAMA_ORIGINS="http://a.example, chrome-extension://*,,*")
    assert settings.origins == ("http://a.example", "chrome-extension://*", "*", *BUILT_IN_ORIGINS)
    assert parse().origins == BUILT_IN_ORIGINS
    assert {"http://localhost", "https://127.0.0.1:*", "http://0.0.0.0:*", "app://*"} < set(BUILT_IN_ORIGINS)
    assert len(BUILT_IN_ORIGINS) == 17


@pytest.mark.parametrize("text", ["a.example", "ftp://a", "http://a,b", "http://*.a.*", "**"])
def test_a_wrong_origin_fails_at_start_up(text: str) -> None:
    with pytest.raises(SettingsError, match="OLLAMA_ORIGINS"):
        parse(OLLAMA_ORIGINS=text)


def test_choices_sizes_and_paths() -> None:
    settings = parse(
        TRIO_OLLAMA_RUNNER="Embedded",
        TRIO_OLLAMA_ABANDONED_LOAD="finish",
        TRIO_OLLAMA_PROMPT_CACHE="512",
        TRIO_OLLAMA_MAX_BODY="1 KiB",
        TRIO_OLLAMA_LLAMA_SERVER="/opt/llama-server",
        OLLAMA_MODELS="store",
        OLLAMA_KV_CACHE_TYPE="Q8_0",
        OLLAMA_EDITOR="vi",
    )
    assert (settings.runner, settings.abandoned_load, settings.prompt_cache_mib) == ("embedded", "finish", 512)
    assert settings.max_body == 1024
    assert settings.llama_server == Path("/opt/llama-server")
    assert settings.models == Path.cwd() / "store"
    assert (settings.kv_cache_type, settings.editor) == ("q8_0", "vi")
    assert settings.warnings == ()
    assert parse(TRIO_OLLAMA_MAX_BODY="1000").max_body == 1000
    assert parse(TRIO_OLLAMA_PROMPT_CACHE="2GiB").prompt_cache_mib == 2048


def test_wrong_choices_and_sizes_are_reported() -> None:
    settings = parse(TRIO_OLLAMA_RUNNER="both", TRIO_OLLAMA_MAX_BODY="much", TRIO_OLLAMA_ABANDONED_LOAD="no")
    assert (settings.runner, settings.abandoned_load, settings.max_body) == ("auto", "abort", 128 << 20)
    assert len(settings.warnings) == 3


def test_the_empty_gpu_filter_is_not_the_missing_one() -> None:
    assert parse().cuda_visible_devices is None
    assert parse(CUDA_VISIBLE_DEVICES="").cuda_visible_devices == ""
    assert parse(CUDA_VISIBLE_DEVICES="0,1").cuda_visible_devices == "0,1"


@pytest.mark.parametrize(
    ("given", "folder"),
    [("/var/cache", "/var/cache"), ("", "/home/x/.cache"), ("relative", "/home/x/.cache")],
)
def test_the_cache_is_where_the_base_directories_say(given: str, folder: str) -> None:
    assert parse(XDG_CACHE_HOME=given).cache == Path(folder, "trio-ollama")
