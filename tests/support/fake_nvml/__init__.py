"""NVIDIA GPUs where there are none: a library that answers for NVIDIA's, and the machine it speaks of."""

from __future__ import annotations

from .build import NO_COMPILER, build, compiler
from .machine import GIB, MIB, FakeGpu, FakeMachine, Machine

__all__ = ["GIB", "MIB", "NO_COMPILER", "FakeGpu", "FakeMachine", "Machine", "build", "compiler"]
