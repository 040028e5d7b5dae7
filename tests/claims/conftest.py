"""Verdicts on planted tables do not hang on the number of bootstrap draws; their time does."""

from functools import partial

import pytest

from scaled_idempotence.claims import constructive_search as capacity


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    few = partial(capacity.attainment_gaps, n_resamples=60)
    monkeypatch.setattr(capacity, "attainment_gaps", few)
