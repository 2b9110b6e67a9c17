"""The first code that runs in a child process: tie it to the daemon, then become llama.cpp's server.

Run by path, not as a module, so that nothing of the package is imported and the child starts quickly. Arguments: the
daemon's pid, and one JSON object with either `exec` (the command line of a `llama-server` binary) or `parameters`
(dotted attributes of `xllamacpp.CommonParams` and their values, see `embedded.parameters`).

A key for loopback connections comes in the environment (`LLAMA_API_KEY`), never on the command line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
LOG_DELAY = 0.5
"""Seconds for the library's log to be written, in a build that cannot be asked to."""


def main(arguments: list[str]) -> NoReturn:
    """Never returns: the process ends by a signal, when the daemon goes, or with status 1 when the load fails."""
    die_with(int(arguments[0]))
    launch = json.loads(arguments[1])
    if command := launch.get("exec"):
        os.execv(command[0], command)
    serve(launch["parameters"])


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the daemon's thread that started it ends (R69); survives `exec`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the signal was set up
        os._exit(1)


def serve(parameters: Mapping[str, Any]) -> NoReturn:
    """Load the model and serve until killed."""
    import threading

    import xllamacpp

    threading.Thread(target=exit_with_stdin, daemon=True).start()
    try:
        # The constructor keeps the interpreter lock for the whole load: only signals get through meanwhile.
        server = xllamacpp.Server(common_params(xllamacpp, parameters))
    except Exception as error:
        flush_log(xllamacpp)
        os.write(2, f"error: {error}\n".encode())
        sys.exit(1)
    while True:
        signal.pause()
        del server  # never reached by a signal we expect: their default action ends the process


def flush_log(xllamacpp: Any) -> None:
    """Wait until the library's log is written: it has the reason of a failure, and a thread of its own, which the exit
    cuts off. The library exports the two functions, though not to Python."""
    try:
        library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        log, flush = library._Z15common_log_mainv, library._Z16common_log_flushP10common_log
    except (AttributeError, OSError):
        import threading

        threading.Event().wait(LOG_DELAY)
        return
    log.restype, flush.restype, flush.argtypes = ctypes.c_void_p, None, [ctypes.c_void_p]
    flush(log())


def exit_with_stdin() -> None:
    """Second line of defence: the daemon holds the other end of stdin, which closes with it, however it ends."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def common_params(xllamacpp: Any, parameters: Mapping[str, Any]) -> Any:
    """A `CommonParams` with the given attributes; see `embedded.parameters` for the form of the values."""
    params = xllamacpp.CommonParams()
    for name, value in parameters.items():
        owner = params
        *owners, attribute = name.split(".")
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, attribute, native(xllamacpp, value))
    if key := os.environ.pop("LLAMA_API_KEY", None):
        params.api_keys = [key]
    return params


def native(xllamacpp: Any, value: Any) -> Any:
    """Turn `{"enum": "type.MEMBER"}` and `{"adapter": path}` into the library's objects, also inside lists."""
    if isinstance(value, list):
        return [native(xllamacpp, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "adapter" in value:
        return xllamacpp.CommonAdapterLoraInfo(value["adapter"], 1.0)
    kind, member = value["enum"].split(".")
    found = getattr(getattr(xllamacpp, kind), member, None)
    if found is None:
        raise ValueError(f"this build of xllamacpp has no {member}")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
