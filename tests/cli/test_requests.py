"""`ps --requests`, `cancel` and `stop --force`: commands for routes that only our server has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama

GENERATING: dict[str, Any] = {
    "id": "req_0123456789abcdef01234567",
    "method": "POST",
    "path": "/api/chat",
    "dialect": "ollama",
    "client": "127.0.0.1:50000",
    "model": "tiny:latest",
    "stage": "generating",
    "arrived_at": "2026-08-21T12:00:00Z",
    "seconds": 12.34,
    "keep_alive": 300.0,
    "number": 4,
    "generation": 2,
    "waiting": None,
    "tokens": 17,
    "prompt": {"total": 50, "processed": 50},
}
READING = GENERATING | {"id": "a", "stage": "prefill", "tokens": 0, "prompt": {"total": 900, "processed": 256}}
WAIT: dict[str, Any] = {
    "because": "runners that must make room are still busy",
    "since": "2026-08-21T12:00:00Z",
    "seconds": 3.0,
    "position": 1,
    "request": "",
    "generation": 2,
    "model": "tiny:latest",
    "resource": "GPU-0",
    "short": 1_500_000_000,
}
WAITING = GENERATING | {
    "id": "b",
    "model": "large:latest",
    "stage": "waiting for drain",
    "tokens": 0,
    "prompt": None,
    "waiting": WAIT,
}
BEHIND = WAITING | {
    "id": "c",
    "stage": "queued",
    "waiting": WAIT
    | {"because": "behind an earlier request for the same model", "position": 2, "request": "b", "short": 0},
}
MODELS = WAITING | {"id": "d", "waiting": WAIT | {"resource": "models", "short": 1, "position": None}}
NEW = WAITING | {"id": "e", "model": "", "stage": "reading", "waiting": None}
ALL = [GENERATING, READING, WAITING, BEHIND, MODELS, NEW]

BUSY = "runners that must make room are still busy (tiny:latest, generation 2)"


def test_a_table(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["GET /api/requests"] = Answer({"requests": ALL})
    result = invoke("ps", "--requests")
    assert result.exit_code == 0
    head, *lines = result.output.splitlines()
    assert head.split() == ["ID", "MODEL", "ROUTE", "CLIENT", "STAGE", "SECONDS", "TOKENS", "WAITS"]
    cells = [[cell for cell in line.split("    ") if cell.strip()] for line in lines]
    stripped = [[cell.strip() for cell in row] for row in cells]
    common = ["/api/chat", "127.0.0.1:50000"]
    assert stripped == [
        ["req_0123456789abcdef01234567", "tiny:latest", *common, "generating", "12.3", "17"],
        ["a", "tiny:latest", *common, "prefill", "12.3", "256/900"],
        ["b", "large:latest", *common, "waiting for drain", "12.3", "0", f"place 1: {BUSY}, 1.5 GB on GPU-0 short"],
        [
            *("c", "large:latest", *common, "queued", "12.3", "0"),
            "place 2: behind an earlier request for the same model (b)",
        ],
        [
            *("d", "large:latest", *common, "waiting for drain", "12.3", "0"),
            f"{BUSY}, 1 place among the loaded models short",
        ],
        ["e", "-", *common, "reading", "12.3", "0"],
    ]


def test_as_json_and_by_the_beginning_of_a_name(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["GET /api/requests"] = Answer({"requests": ALL})
    assert json.loads(invoke("ps", "--requests", "--json").output) == ALL
    assert json.loads(invoke("ps", "tin", "--requests", "--json").output) == [GENERATING, READING]


def test_cancel(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["DELETE /api/requests/a%2Fb%20"] = Answer({"canceled": [GENERATING, WAITING]})
    result = invoke("cancel", "a/b ")
    assert (result.exit_code, result.output) == (
        0,
        "canceled 'req_0123456789abcdef01234567' (/api/chat of 127.0.0.1:50000, generating)\n"
        "canceled 'b' (/api/chat of 127.0.0.1:50000, waiting for drain)\n",
    )


def test_cancel_whoever_is_not_there(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["DELETE /api/requests/x"] = Answer({"error": "request 'x' not found"}, 404)
    result = invoke("cancel", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        "Error: request 'x' not found (see 'trio-ollama ps --requests')\n",
    )


def test_stop_by_force(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/stop"] = Answer({"message": "tiny is not loaded"})
    result = invoke("stop", "--force", "tiny")
    assert (result.exit_code, result.output) == (0, "tiny is not loaded\n")
    assert server.requests[0].json == {"model": "tiny", "mode": "force"}
    server.answers["POST /api/stop"] = Answer({"error": "model 'no' not found"}, 404)
    result = invoke("stop", "--force", "no")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: couldn't find model \"no\" to stop (see 'trio-ollama ps')\n",
    )


@pytest.mark.parametrize(("status", "body"), [(404, "404 page not found"), (405, None), (404, {"error": "path"})])
@pytest.mark.parametrize(
    ("arguments", "route"),
    [
        (("ps", "--requests"), "GET /api/requests"),
        (("cancel", "x"), "DELETE /api/requests/x"),
        (("stop", "--force", "m"), "POST /api/stop"),
    ],
)
def test_a_server_of_another_kind(
    server: FakeOllama, invoke: Invoke, arguments: tuple[str, ...], route: str, status: int, body: object
) -> None:
    server.answers[route] = Answer(body, status)
    result = invoke(*arguments)
    text = f"the server at http://{server.address} cannot do that: it is no trio-ollama of today"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {text}\n")
