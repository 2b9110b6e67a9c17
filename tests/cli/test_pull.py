"""`pull`: what is asked for, what a pipe sees of it, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.asleep import wait_until_asleep
from tests.support.fake_ollama import Answer, FakeOllama

LAYER = "sha256:" + "0123456789ab" + "c" * 52
OBJECTS: list[dict[str, Any]] = [
    {"status": "pulling manifest"},
    {"status": "pulling 0123456789ab", "digest": LAYER, "total": 1_000_000},
    {"status": "pulling 0123456789ab", "digest": LAYER, "total": 1_000_000, "completed": 400_000},
    {"status": "pulling 0123456789ab", "digest": LAYER, "total": 1_000_000, "completed": 1_000_000},
    {"status": "verifying sha256 digest"},
    {"status": "writing manifest"},
    {"status": "success"},
]
STEPS = "pulling manifest\npulling 0123456789ab\nverifying sha256 digest\nwriting manifest\nsuccess\n"


@pytest.fixture
def registry(server: FakeOllama) -> FakeOllama:
    server.answers["POST /api/pull"] = Answer(lines=OBJECTS)
    return server


def test_a_pipe_gets_a_line_for_each_step_and_no_control_codes(registry: FakeOllama, invoke: Invoke) -> None:
    result = invoke("pull", "smollm2")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", STEPS)
    assert registry.requests[0].json == {"model": "smollm2"}


def test_insecure_is_passed_on(registry: FakeOllama, invoke: Invoke) -> None:
    invoke("pull", "localhost:5000/mine/m:1", "--insecure")
    assert registry.requests[0].json == {"model": "localhost:5000/mine/m:1", "insecure": True}


def test_a_model_that_the_registry_has_not(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/pull"] = Answer(
        lines=[{"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}]
    )
    result = invoke("pull", "nobody/has")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "pulling manifest\n"
        "Error: pull model manifest: file does not exist (the registry has no 'nobody/has': check its name and tag)\n"
    )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(lines=OBJECTS[:3]), "the server ended the download before it was whole"),
        (Answer(lines=OBJECTS[:3], cut=True), "connection to the server was lost: its answer broke off"),
        (Answer(lines=[*OBJECTS[:3], {"error": "max retries exceeded: EOF"}]), "max retries exceeded: EOF"),
    ],
)
def test_what_was_begun_can_be_gone_on_with(server: FakeOllama, invoke: Invoke, answer: Answer, error: str) -> None:
    server.answers["POST /api/pull"] = answer
    result = invoke("pull", "smollm2")
    assert result.exit_code == 1
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"Error: {error}")
    assert line.endswith("; 'trio-ollama pull smollm2' goes on where it was")


def test_a_model_that_is_not_for_everybody(server: FakeOllama, invoke: Invoke) -> None:
    said = "pull model manifest: unauthorized: access denied"
    server.answers["POST /api/pull"] = Answer(lines=[*OBJECTS[:1], {"error": said}])
    assert invoke("pull", "me/private").stderr.splitlines()[-1] == (
        f"Error: {said} (check the name; the registry has to know the server's key, ~/.ollama/id_ed25519.pub, to let "
        "it have a private model)"
    )


def test_what_was_not_begun_just_failed(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/pull"] = Answer(lines=[*OBJECTS[:1], {"error": "no such host"}])
    assert invoke("pull", "smollm2").stderr == "pulling manifest\nError: no such host\n"


def test_ctrl_c_leaves_at_once_and_says_how_to_go_on(server: FakeOllama) -> None:
    server.answers["POST /api/pull"] = Answer(lines=OBJECTS[:3], endless=True)
    child = subprocess.Popen(
        [sys.executable, "-m", "trio_ollama.cli", "pull", "smollm2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.waiting.wait(30)
        wait_until_asleep(child.pid)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (child.returncode, out) == (130, "")
    assert err == "pulling manifest\npulling 0123456789ab\nStopped. 'trio-ollama pull smollm2' goes on where it was.\n"
    assert server.client_left.wait(30)
