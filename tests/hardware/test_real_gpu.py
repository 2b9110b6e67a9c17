"""The checks of `check_real_gpu`, where there is a GPU to check them on; elsewhere that they still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hardware import check_real_gpu
from tests.support.fake_nvml import NO_COMPILER, FakeGpu, FakeMachine, build, compiler
from trio_ollama.hardware.nvml import Nvml


@pytest.mark.skipif(not Nvml("").query(), reason="no NVIDIA GPU on this machine")
def test_the_real_gpu_is_what_we_make_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    status = check_real_gpu.main()
    assert status == 0, capsys.readouterr().out


@pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)
def test_the_checks_hold_for_a_simulated_driver(tmp_path: Path) -> None:
    """Without CUDA, as far as they come."""
    gpus = [FakeGpu("GPU-11111111-2222"), FakeGpu("GPU-11119999-2222")]
    machine = FakeMachine(tmp_path / "machine", build(tmp_path), gpus)
    done = subprocess.run(
        [sys.executable, "-m", "tests.hardware.check_real_gpu"],
        env={**os.environ, **machine.variables, "PATH": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    filter GPU-11119999: GPU-11119999-2222" in done.stdout
    assert "all as it should be" in done.stdout


def test_what_runs_in_the_child_is_python() -> None:
    compile(check_real_gpu.CUDA, "child", "exec")
