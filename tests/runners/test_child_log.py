"""What an embedded child logs before it fails is not lost with it."""

from __future__ import annotations

import subprocess
import sys

import trio_ollama.runners.llama_server.child as child

LINES = 2000
SCRIPT = f"""
import ctypes, os, runpy
import xllamacpp

flush_log = runpy.run_path({child.__file__!r})["flush_log"]
library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
log = library._Z15common_log_mainv
add = library._Z14common_log_addP10common_log14ggml_log_levelPKcz
log.restype, add.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
for _ in range({LINES}):
    add(log(), 4, b"the reason\\n")
flush_log(xllamacpp)
os._exit(1)
"""
"""Says much at once, as a load does, and ends without the library's own cleaning up."""


def test_it_is_written_to_the_end() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert (ended.stdout + ended.stderr).count("the reason\n") == LINES
