"""A scheduler that is gone cancels every future: that is no failure of a structure."""

from __future__ import annotations

from concurrent.futures import Executor, Future

import pytest
from ase.build import molecule

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.queue import EvaluationQueue


class Gone(Executor):
    """Takes work and cancels it, as a Dask client whose scheduler was killed."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_it_ends_the_search_and_costs_no_evaluation():
    with EvaluationQueue(EngineConfig(name="emt", retries=1), 1, Gone()) as queue:
        queue.submit(0, molecule("N2"))
        with pytest.raises(NuggetError, match="takes no more work"):
            queue.next()
