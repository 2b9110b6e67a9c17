"""The grammar of names and digests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import InvalidDigestError, InvalidNameError
from trio_ollama.models.names import ModelName, Source, split_source

R, L = "registry.ollama.ai", "library"


@pytest.mark.parametrize(
    ("text", "parts", "short"),
    [
        ("llama3", (R, L, "llama3", "latest"), "llama3:latest"),
        ("llama3:8b", (R, L, "llama3", "8b"), "llama3:8b"),
        ("Llama3:8B-Q4_0", (R, L, "Llama3", "8B-Q4_0"), "Llama3:8B-Q4_0"),
        ("mike/my_model", (R, "mike", "my_model", "latest"), "mike/my_model:latest"),
        ("hf.co/user/repo:Q4_K_M", ("hf.co", "user", "repo", "Q4_K_M"), "hf.co/user/repo:Q4_K_M"),
        ("localhost:5000/ns/m:t", ("localhost:5000", "ns", "m", "t"), "localhost:5000/ns/m:t"),
        ("localhost:5000/ns/m", ("localhost:5000", "ns", "m", "latest"), "localhost:5000/ns/m:latest"),
        ("https://h/ns/m:t", ("h", "ns", "m", "t"), "h/ns/m:t"),
        ("http://h:1/ns/m", ("h:1", "ns", "m", "latest"), "h:1/ns/m:latest"),
        ("registry.ollama.ai/library/m", (R, L, "m", "latest"), "m:latest"),
        ("Registry.Ollama.AI/Library/m", ("Registry.Ollama.AI", "Library", "m", "latest"), "m:latest"),
        ("h/library/m", ("h", L, "m", "latest"), "h/library/m:latest"),
        ("a..b:1.5", (R, L, "a..b", "1.5"), "a..b:1.5"),
        ("_m:_t", (R, L, "_m", "_t"), "_m:_t"),
    ],
)
def test_a_name_is_split_and_filled_with_defaults(text: str, parts: tuple[str, ...], short: str) -> None:
    name = ModelName.parse(text)
    assert tuple(name) == parts
    assert name.short == short
    assert name.full == "{}/{}/{}:{}".format(*parts)
    assert ModelName.parse(name.short).same(name)
    assert ModelName.parse(name.full) == name
    assert name.relative_path.parts == parts


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "/", "m:", ":t", "/m", "m/", "ns//m", "//m", "h/ns/", "/ns/m", "m:t:u", "a/b/c/d", "m t", " m", "m\n",
        "m@sha256:" + "0" * 64, "..", "../m", "ns/../m", ".m", "m:.t", "-m", "m:-t", "n.s/m", ".h/ns/m", "m:..", "mé",
        "m" * 81, "n" * 81 + "/m", "m:" + "t" * 81, "h" * 351 + "/n/m", "m\0", "http://m", "://h/n/m", "1+:/h/n/m",
        "m:t/", "m:/t", "https://h/m",
    ],
)  # fmt: skip
def test_a_wrong_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError, match=r"^invalid model name$") as caught:
        ModelName.parse(text)
    assert caught.value.status == 400


def test_the_longest_parts_are_allowed() -> None:
    ModelName.parse(f"{'h' * 350}/{'n' * 80}/{'m' * 80}:{'t' * 80}")


def test_case_does_not_distinguish_models_but_is_kept() -> None:
    name = ModelName.parse("NS/Model:Tag")
    assert name.same(ModelName.parse("ns/mODEL:tAG"))
    assert name != ModelName.parse("ns/model:tag")
    assert name.short == "NS/Model:Tag"


@given(st.text(alphabet="aZ0_-.:/ \\\0é", max_size=20))
def test_no_name_leads_out_of_the_store(text: str) -> None:
    try:
        name = ModelName.parse(text)
    except InvalidNameError:
        return
    root = Path("/store/manifests")
    path = root / name.relative_path
    assert len(path.relative_to(root).parts) == 4
    assert ".." not in path.parts
    assert path == Path(*path.parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m", ("m", Source.ANY)),
        ("m:8b", ("m:8b", Source.ANY)),
        ("m:cloud", ("m", Source.CLOUD)),
        ("m:local", ("m", Source.LOCAL)),
        ("m:8b:local", ("m:8b", Source.LOCAL)),
        ("m:20b-cloud", ("m:20b", Source.CLOUD)),
        ("m:20b-Cloud", ("m:20b", Source.CLOUD)),
        ("my-cloud", ("my-cloud", Source.ANY)),
        ("h:1/local/m", ("h:1/local/m", Source.ANY)),
    ],
)
def test_the_source_is_taken_off(text: str, expected: tuple[str, Source]) -> None:
    assert split_source(text) == expected


@pytest.mark.parametrize("text", ["m:cloud:local", "m:20b-cloud:local"])
def test_two_sources_are_refused(text: str) -> None:
    with pytest.raises(InvalidNameError, match="use either :local or :cloud, not both: ") as caught:
        split_source(text)
    assert str(caught.value).endswith(f'"{text}"')


@pytest.mark.parametrize("separator", ":-")
def test_a_digest_has_two_spellings_and_any_case(separator: str) -> None:
    digest = Digest.parse(f"sha256{separator}{'Ab' * 32}")
    assert str(digest) == "sha256:" + "ab" * 32
    assert digest.file_name == "sha256-" + "ab" * 32


@pytest.mark.parametrize(
    "text",
    [
        *("", "sha256:", "0" * 64, "sha512:" + "0" * 64, "sha256:../" + "0" * 61, "sha256:" + "0" * 64 + "\n"),
        *("sha256:" + "0" * 63, "sha256:" + "0" * 65, "sha256:" + "g" * 64),
    ],
)
def test_a_wrong_digest_is_refused(text: str) -> None:
    with pytest.raises(InvalidDigestError, match=r"^invalid digest format$"):
        Digest.parse(text)
