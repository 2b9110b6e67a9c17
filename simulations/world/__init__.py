"""The real scheduler among simulated devices, processes and clients, on a clock that jumps."""

from .hardware import GIB
from .world import EFFECTIVELY_FOR_EVER, GPU, World, open_world, running

__all__ = ["EFFECTIVELY_FOR_EVER", "GIB", "GPU", "World", "open_world", "running"]
