"""Both kinds of llama-server runner, as real child processes, against the contract."""

from __future__ import annotations

import pytest

from tests.runners.contract_suite import RunnerContract

pytestmark = pytest.mark.real


class TestLlamaServer(RunnerContract):
    """The embedded child, and the external kind with the double as its binary."""
