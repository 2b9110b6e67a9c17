"""Registries: models come from them (pull) and go to them (push), over Docker's protocol, version 2.

pull ── manifest ── download of each blob ── parts, fetched in parallel
                    (shared by all who want it)
"""

from __future__ import annotations

from .errors import RegistryError
from .limits import Limits
from .reference import Reference
from .registry import Registry
from .transfer import Transfer

__all__ = ["Limits", "Reference", "Registry", "RegistryError", "Transfer"]
