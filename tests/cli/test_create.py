"""`create`: what is uploaded, what is asked for, what is shown."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.client import Client, ClientError
from trio_ollama.cli.uploads import names_of, upload

WEIGHTS = b"GGUF" + bytes(3_000_000)
DIGEST = f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
BLOB = f"/api/blobs/{DIGEST}"
SENDING = "hashing model.gguf\nuploading model.gguf\n"


@pytest.fixture
def folder(tmp_path: Path, server: FakeOllama) -> Path:
    """A folder with weights; a server that has them not and says so, and then creates."""
    (tmp_path / "model.gguf").write_bytes(WEIGHTS)
    server.answers = {
        f"HEAD {BLOB}": Answer(status=404),
        f"POST {BLOB}": Answer(status=201),
        "POST /api/create": Answer(
            lines=[{"status": "parsing GGUF"}, {"status": "parsing GGUF"}, {"status": "writing manifest"}]
        ),
    }
    return tmp_path


def modelfile(folder: Path, text: str) -> str:
    file = folder / "Modelfile"
    file.write_text(text)
    return str(file)


def asked(server: FakeOllama) -> Any:
    return server.asked("POST /api/create")[-1].json


def test_weights_are_sent_and_the_model_is_created(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    result = invoke("create", "mine", "-f", modelfile(folder, "FROM ./model.gguf\n"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{SENDING}parsing GGUF\nwriting manifest\n"
    sent = server.asked(f"POST {BLOB}")[0]
    assert sent.raw == WEIGHTS
    assert asked(server) == {"model": "mine", "files": {"model.gguf": DIGEST}}


def test_bytes_the_server_has_are_not_sent_again(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    server.answers[f"HEAD {BLOB}"] = Answer()
    assert invoke("create", "mine", "-f", modelfile(folder, f"FROM {folder}/model.gguf")).exit_code == 0
    assert server.asked(f"POST {BLOB}") == []
    assert asked(server)["files"] == {"model.gguf": DIGEST}


def test_every_instruction_reaches_the_server(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    text = """\
FROM other:7b
ADAPTER model.gguf
PARAMETER temperature 0.5
PARAMETER stop one
PARAMETER stop two
TEMPLATE {{ .Prompt }}
SYSTEM Be kind.
LICENSE MIT
MESSAGE user hi
MESSAGE assistant hello
"""
    invoke("create", "mine", "-q", "q4_0", "-f", modelfile(folder, text))
    assert asked(server) == {
        "model": "mine",
        "from": "other:7b",
        "adapters": {"model.gguf": DIGEST},
        "parameters": {"temperature": 0.5, "stop": ["one", "two"]},
        "template": "{{ .Prompt }}",
        "system": "Be kind.",
        "license": ["MIT"],
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        "quantize": "q4_0",
    }


def test_a_folder_stands_for_the_weights_in_it(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    (folder / "notes.txt").write_text("no weights")
    (folder / "other.bin").write_text("less wanted than a GGUF")
    invoke("create", "mine", "-f", modelfile(folder, "FROM ."))
    assert asked(server)["files"] == {"model.gguf": DIGEST}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("FROM ./absent.gguf", "./absent.gguf: no such file"),
        ("FROM m\nADAPTER absent", "absent: no such file"),
        (
            "FROM ./empty",
            "no Modelfile or safetensors files found in FOLDER/empty, nor GGUF files (FROM names one in a Modelfile)",
        ),
        ("SYSTEM x", "no FROM line"),
        ("FROM m\nPARAMETER what 1", "unknown parameter 'what'"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(
    server: FakeOllama, folder: Path, invoke: Invoke, text: str, error: str
) -> None:
    (folder / "empty").mkdir()
    result = invoke("create", "mine", "-f", modelfile(folder, text))
    assert (result.exit_code, result.stderr) == (1, f"Error: {error.replace('FOLDER', str(folder))}\n")
    assert server.requests == []


def test_a_modelfile_that_is_not_there(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    result = invoke("create", "mine", "-f", str(folder / "none"))
    said = f"specified Modelfile wasn't found: there is no file '{folder / 'none'}' (-f names another)"
    assert (result.exit_code, result.stderr) == (1, f"Error: {said}\n")


def test_without_a_modelfile_the_weights_in_this_folder_are_taken(
    server: FakeOllama, folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert invoke("create", "mine").exit_code == 0
    assert asked(server) == {"model": "mine", "files": {"model.gguf": DIGEST}}
    (folder / "Modelfile").write_text("FROM other")
    invoke("create", "mine")
    assert asked(server) == {"model": "mine", "from": "other"}


def test_without_anything_to_create_from(server: FakeOllama, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with contextlib.chdir(tmp_path / "empty"):
        result = invoke("create", "mine")
    said = f"no Modelfile or safetensors files found in {tmp_path / 'empty'}, nor GGUF files"
    assert (result.exit_code, result.stderr) == (1, f"Error: {said} (FROM names one in a Modelfile)\n")


def test_a_bad_name_is_told_before_anything_is_sent(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    result = invoke("create", "mi ne", "-f", modelfile(folder, "FROM model.gguf"))
    assert (result.exit_code, result.stderr.partition(" (")[0]) == (1, "Error: invalid model name")
    assert server.requests == []


def test_flags_are_passed_on(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    (folder / "draft.gguf").write_bytes(WEIGHTS)
    flags = ("--draft-quantize", "q8_0", "--experimental", "-q", "q4_0")
    invoke("create", "mine", *flags, "-f", modelfile(folder, "FROM other\nDRAFT draft.gguf"))
    assert asked(server) == {
        "model": "mine",
        "from": "other",
        "draft_files": {"draft.gguf": DIGEST},
        "quantize": "q4_0",
        "draft_quantize": "q8_0",
        "experimental": True,
    }
    result = invoke("create", "mine", *flags, "-f", modelfile(folder, "FROM other"))
    assert (result.exit_code, result.stderr) == (1, "Error: --draft-quantize requires a DRAFT model\n")


def test_errors_of_the_server_end_it(server: FakeOllama, folder: Path, invoke: Invoke) -> None:
    server.answers["POST /api/create"] = Answer(lines=[{"status": "parsing GGUF"}, {"error": "bad file"}])
    result = invoke("create", "mine", "-f", modelfile(folder, "FROM model.gguf"))
    assert (result.exit_code, result.stderr) == (1, f"{SENDING}parsing GGUF\nError: bad file\n")
    server.answers[f"POST {BLOB}"] = Answer({"error": "disk full"}, 500)
    result = invoke("create", "mine", "-f", modelfile(folder, "FROM model.gguf"))
    assert (result.exit_code, result.stderr) == (1, f"{SENDING}Error: disk full\n")


@pytest.mark.parametrize(
    ("text", "said", "told"),
    [
        ("FROM model.gguf", "unknown type", "unknown type: FOLDER/model.gguf is no GGUF file"),
        (
            "FROM modell.gguf",
            "pull model manifest: file does not exist",
            "pull model manifest: file does not exist ('modell.gguf' is neither a file nor a model of this server's)",
        ),
    ],
)
def test_what_the_server_cannot_know_is_added(
    server: FakeOllama, folder: Path, invoke: Invoke, text: str, said: str, told: str
) -> None:
    server.answers["POST /api/create"] = Answer(lines=[{"error": said}])
    result = invoke("create", "mine", "-f", modelfile(folder, text))
    assert result.stderr.splitlines()[-1] == f"Error: {told.replace('FOLDER', str(folder))}"


def test_a_server_that_does_not_read_the_body_is_heard(server: FakeOllama, tmp_path: Path) -> None:
    server.answers[f"POST {BLOB}"] = Answer({"error": "refused"}, 403, deaf=True)
    blocks = (bytes(1_000_000) for _ in range(50))
    with pytest.raises(ClientError, match="refused"):
        Client(f"http://{server.address}").upload(BLOB, blocks, 50_000_000)


def test_a_file_that_grows_is_noticed(server: FakeOllama, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(client: Client, path: str) -> bool:
        with (folder / "model.gguf").open("ab") as file:
            file.write(b"more")
        return False

    monkeypatch.setattr(Client, "exists", exists)
    with pytest.raises(ClientError, match=r"model\.gguf changed while it was read"):
        upload(Client(f"http://{server.address}"), folder / "model.gguf", lambda message: None)


def test_names_are_paths_below_the_shared_folder() -> None:
    assert names_of([]) == {}
    assert names_of([Path("/a/b/model.gguf")]) == {"model.gguf": Path("/a/b/model.gguf")}
    assert list(names_of([Path("/a/b/model.gguf"), Path("/a/c/d/mmproj.gguf")])) == ["b/model.gguf", "c/d/mmproj.gguf"]
