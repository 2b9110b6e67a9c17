"""System memory: the machine's figures under the limits of our control groups (runner-and-memory 4.6, I19)."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from trio_ollama.hardware.contract import MemoryReport
from trio_ollama.hardware.system import SystemMemory, machine_memory

MACHINE = MemoryReport(total=1000, free=600, swap_free=50)


class Tree:
    """A folder that looks like /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cgroups = root / "cgroup"

    def own(self, *lines: str) -> None:
        path = self.proc / "self" / "cgroup"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def group(self, path: str, **files: object) -> None:
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(f"{content}\n")

    def read(self) -> MemoryReport | None:
        return SystemMemory(proc=self.proc, cgroups=self.cgroups, machine=lambda: MACHINE).read()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_control_groups_the_machine_counts(tree: Tree) -> None:
    assert tree.read() == MACHINE


def test_no_limit_leaves_the_machines_figures(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max="max", memory__current=990)
    assert tree.read() == MACHINE


def test_version_2_page_cache_does_not_count_as_used(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max=400, memory__current=390, memory__stat="anon 90\ninactive_file 300\nactive_file 5")
    assert tree.read() == MemoryReport(total=400, free=310, swap_free=50)


def test_the_tightest_group_above_us_counts(tree: Tree) -> None:
    tree.own("0::/a/b/c")
    tree.group("a", memory__max=500, memory__current=450)
    tree.group("a/b", memory__max="max", memory__current=10)
    tree.group("a/b/c", memory__max=300, memory__current=10)
    assert tree.read() == MemoryReport(total=300, free=50, swap_free=50)


def test_the_machine_may_be_tighter_than_the_limit(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max=900, memory__current=10)
    assert tree.read() == MemoryReport(total=900, free=600, swap_free=50)


def test_usage_beyond_the_limit_leaves_nothing(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max=100, memory__current=150)
    assert tree.read() == MemoryReport(total=100, free=0, swap_free=50)


def test_cache_beyond_the_usage_is_not_more_than_the_limit(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max=100, memory__current=10, memory__stat="inactive_file 50")
    assert tree.read() == MemoryReport(total=100, free=100, swap_free=50)


@pytest.mark.parametrize("path", ["/docker/0123abc", "/../../other"])
def test_in_a_container_the_root_of_the_mount_is_ours(tree: Tree, path: str) -> None:
    tree.own(f"0::{path}")
    tree.group("", memory__max=200, memory__current=50)
    assert tree.read() == MemoryReport(total=200, free=150, swap_free=50)


def test_version_1(tree: Tree) -> None:
    tree.own("5:cpu,cpuacct:/x", "4:memory:/a/b", "0::/")
    tree.group("memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=999)
    tree.group("memory/a", memory__limit_in_bytes=350, memory__usage_in_bytes=300)
    tree.group(
        "memory/a/b",
        memory__limit_in_bytes=400,
        memory__usage_in_bytes=390,
        memory__stat="inactive_file 1\ntotal_inactive_file 100",
    )
    assert tree.read() == MemoryReport(total=350, free=50, swap_free=50)


def test_the_limit_above_which_the_kernel_throttles_counts(tree: Tree) -> None:
    tree.own("0::/a")
    tree.group("a", memory__max=400, memory__high=300, memory__current=250)
    assert tree.read() == MemoryReport(total=300, free=50, swap_free=50)
    tree.group("a", memory__max="max", memory__high="max")
    assert tree.read() == MACHINE


def test_swap_has_limits_of_its_own(tree: Tree) -> None:
    tree.own("0::/a/b")
    tree.group("a", memory__max="max", memory__swap__max=0)
    assert tree.read() == MemoryReport(total=1000, free=600, swap_free=0)
    tree.group("a", memory__swap__max=30, memory__swap__current=10)
    assert tree.read() == MemoryReport(total=1000, free=600, swap_free=20)
    tree.group("a", memory__swap__max="max")
    tree.group("a/b", memory__max=500, memory__current=0, memory__swap__max=40, memory__swap__current=90)
    assert tree.read() == MemoryReport(total=500, free=500, swap_free=0)


def test_whoever_limits_is_named(tree: Tree) -> None:
    tree.own("0::/a/b")
    tree.group("a", memory__max=500, memory__current=450)
    tree.group("a/b", memory__max=2000, memory__current=450)
    assert (tree.read() or MACHINE).limited_by == "/a"
    tree.group("", memory__max=300, memory__current=0)
    assert (tree.read() or MACHINE).limited_by == "/"
    tree.own()
    assert (tree.read() or MACHINE).limited_by == ""


def test_groups_may_have_any_name(tree: Tree) -> None:
    tree.own("0::/größe")
    tree.group("größe", memory__max=500, memory__current=450)
    assert tree.read() == MemoryReport(total=500, free=50, swap_free=50)


@pytest.mark.parametrize(
    "files",
    [
        {"memory__max": "many"},
        {"memory__max": "400", "memory__current": "1", "memory__high": "x"},
        {"memory__max": "400", "memory__current": "1", "memory__swap__max": "x"},
        {"memory__max": "400"},  # a limit, but no usage
        {"memory__max": "400", "memory__current": ""},
        {"memory__max": "400", "memory__current": "1", "memory__stat": "inactive_file x"},
    ],
)
def test_what_cannot_be_read_is_unknown(tree: Tree, files: dict[str, str]) -> None:
    tree.own("0::/a")
    tree.group("a", **files)
    assert tree.read() is None


@pytest.mark.parametrize("error", [OSError("no"), psutil.Error("no")])
def test_a_machine_that_does_not_answer_is_unknown(tmp_path: Path, error: Exception) -> None:
    def fail() -> MemoryReport:
        raise error

    assert SystemMemory(proc=tmp_path, cgroups=tmp_path, machine=fail).read() is None


def test_the_real_machine_answers() -> None:
    machine = machine_memory()
    report = SystemMemory().read()
    assert report is not None
    assert 0 < report.free <= report.total <= machine.total
    assert all(type(value) is int for value in (report.total, report.free, report.swap_free))
