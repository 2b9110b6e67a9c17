"""What a killed daemon left, of ours or Ollama's, is gone on with."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
from pathlib import Path

import pytest
import trio

from tests.support.fake_registry import Reaction
from tests.support.until import until
from trio_ollama.models.blobs import Blobs
from trio_ollama.models.digest import Digest
from trio_ollama.registry.partial import Partial, partial_path
from trio_ollama.registry.parts import Part, PartFiles, frontier, plan
from trio_ollama.registry.verify import Verifier

from .conftest import QUICK, Here

DATA = random.Random(4).randbytes(1_000_000)
DIGEST = Digest.of(DATA)


def write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="ascii")


def left_behind(here: Here, *parts: dict[str, int], data: bytes = DATA) -> Path:
    """A partial file with these parts, as Ollama writes them: a line each, names in capitals."""
    path = partial_path(here.store.blobs, DIGEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for part in parts:
        write(f"{path}-{part['N']}", json.dumps(part) + "\n")
    return path


def part(number: int, offset: int, size: int, completed: int) -> dict[str, int]:
    return {"N": number, "Offset": offset, "Size": size, "Completed": completed}


async def test_only_what_is_missing_is_fetched(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    hole = bytearray(DATA)
    hole[300_000:600_000] = bytes(300_000)
    left_behind(here, part(1, 600_000, 400_000, 400_000), part(0, 0, 600_000, 300_000), data=bytes(hole))
    told = await here.pull()
    assert [found for found in here.remote.parts() if found[1] > 100] == [(300_000, 599_999)]
    assert here.blob(str(DIGEST)) == DATA
    assert here.files() == set()
    assert min(progress.completed for progress in told if progress.total == len(DATA) and progress.completed) >= 700_000


async def test_nothing_is_fetched_of_a_blob_that_only_lacked_its_name(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    left_behind(here, part(0, 0, 1_000_000, 1_000_000))
    await here.pull()
    assert not here.remote.of("GET", f"/blobs/{DIGEST}")
    assert here.blob(str(DIGEST)) == DATA


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part(0, 0, 600_000, 600_000)],
        [part(0, 0, 600_000, 600_000), part(1, 600_001, 399_999, 0)],
        [part(0, 0, 1_000_000, 1_000_001)],
        [part(0, 0, 1_000_000, -1)],
        [part(0, 0, 1_000_001, 5)],
        [part(0, 0, 0, 0), part(1, 0, 1_000_000, 7)],
    ],
)
async def test_parts_that_do_not_make_up_the_blob_are_not_believed(here: Here, parts: list[dict[str, int]]) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    left_behind(here, *parts, data=bytes(1_000_000))
    await here.pull()
    assert here.blob(str(DIGEST)) == DATA
    assert here.files() == set()


async def test_a_part_file_that_was_cut_in_the_middle_of_a_write(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    write(f"{left_behind(here, part(0, 0, 600_000, 600_000), data=bytes(1_000_000))}-1", '{"N":1,"Off')
    await here.pull()
    assert here.blob(str(DIGEST)) == DATA


async def test_a_wrong_claim_costs_a_second_download_and_nothing_else(here: Here) -> None:
    """The disk lost what the part file counts, after a power cut, say."""
    here.remote.add_model("library/tiny:latest", DATA)
    left_behind(here, part(0, 0, 1_000_000, 1_000_000), data=bytes(1_000_000))
    with pytest.raises(Exception, match="digest mismatch, file must be downloaded again"):
        await here.pull()
    await here.pull()
    assert here.blob(str(DIGEST)) == DATA


async def test_progress_is_on_disk_while_parts_come(here: Here) -> None:
    """A kill costs no more than what comes between two saves of each part."""
    here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = lambda request: Reaction(hold=150_000) if request.is_part else None
    transfer = here.begin()
    path = partial_path(here.store.blobs, DIGEST)

    def saved() -> list[int]:
        return [found.completed for found in PartFiles(path).load(1_000_000)[: QUICK.parallel]]

    await until(lambda: all(150_000 - done <= QUICK.save_every for done in saved()), 10, lambda: str(saved()))
    transfer.cancel()


async def test_leftovers_of_a_kill_right_after_the_name_appeared_go_with_the_next_pull(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    await here.pull()
    write(f"{partial_path(here.store.blobs, DIGEST)}-0", "{}")
    await here.pull()
    assert here.files() == set()


async def test_prune_leaves_what_is_being_fetched_alone(here: Here) -> None:
    """A part that was done two hours ago belongs to a file that is written now."""
    here.remote.add_model("library/small:latest", b"small")
    await here.pull("library/small:latest")  # a store without any manifest is never pruned
    path = left_behind(here, part(0, 0, 500_000, 500_000), part(1, 500_000, 500_000, 1))
    now = datetime.datetime.now(datetime.UTC)
    old = now.timestamp() - 2 * 3600
    os.utime(f"{path}-0", (old, old))
    here.store.prune(now)
    assert here.files() == {"-partial", "-partial-0", "-partial-1"}
    os.utime(path, (old, old))
    os.utime(f"{path}-1", (old, old))
    here.store.prune(now)
    assert here.files() == set(), "nobody has touched it for long"


def test_the_plan_covers_the_blob_in_order() -> None:
    for total, least in ((1, 10), (10, 10), (11, 10), (1_000_000, 16), (999_999_999_999, 16_000_000)):
        parts = plan(total, least, 64)
        assert [found.offset for found in parts] == [0, *(found.end for found in parts[:-1])]
        assert parts[-1].end == total
        assert all(0 < found.size <= 16 * least for found in parts)
        assert all(found.size >= least for found in parts[:-1])
    assert plan(0, 10, 64) == []


def test_the_frontier_is_the_end_of_what_is_there_without_a_gap() -> None:
    assert frontier([]) == 0
    assert frontier([Part(0, 0, 10, 4), Part(1, 10, 10, 10)]) == 4
    assert frontier([Part(0, 0, 10, 10), Part(1, 10, 10, 3)]) == 13
    assert frontier([Part(0, 0, 10, 10), Part(1, 10, 10, 10)]) == 20


def test_part_files_are_as_ollama_reads_them(tmp_path: Path) -> None:
    files = PartFiles(tmp_path / "sha256-x-partial")
    files.save(Part(3, 100, 50, 9))
    files.save(Part(3, 100, 50, 10))
    assert (tmp_path / "sha256-x-partial-3").read_bytes() == b'{"N":3,"Offset":100,"Size":50,"Completed":10}'


def test_the_longer_text_of_another_writer_leaves_no_doubt(tmp_path: Path) -> None:
    partial = tmp_path / "sha256-x-partial"
    path = partial.with_name(f"{partial.name}-0")
    path.write_text('{"N": 0, "Offset": 0, "Size": 1000, "Completed": 0}\n')
    files = PartFiles(partial)
    files.save(Part(0, 0, 1000, 200))
    assert path.read_text().endswith("}\n")  # two ends
    assert files.load(1000) == [Part(0, 0, 1000, 200)]


def test_a_partial_file_is_one_daemons(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    mine = Partial.open(blobs, DIGEST, QUICK)
    assert mine is not None
    assert Partial.open(blobs, DIGEST, QUICK) is None
    mine.close()
    again = Partial.open(blobs, DIGEST, QUICK)
    assert again is not None
    again.close()


async def test_the_check_tells_how_fast_it_is(here: Here) -> None:
    left_behind(here, part(0, 0, 1_000_000, 1_000_000), data=DATA)
    partial = Partial.open(here.store.blobs, DIGEST, QUICK)
    assert partial is not None
    try:
        partial.resume(len(DATA))
        verifier = Verifier(partial, len(DATA), trio.CapacityLimiter(1))
        assert verifier.speed == math.inf
        began = trio.current_time()
        assert await verifier.run() == DIGEST.hex
        assert len(DATA) / (trio.current_time() - began) <= verifier.speed < math.inf
    finally:
        partial.close()
