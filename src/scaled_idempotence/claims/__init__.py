"""The paper's claims as predicates over result tables, for `scaled_idempotence.scoreboard`."""

from __future__ import annotations

from ..verdict import FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN, VERDICTS
from . import (
    activations,
    closure_survey,
    constructive_search,
    factorization,
    function,
    scrambling,
    training_lineages,
    value_sharing,
)
from .claim import Claim, Verdict, judge

#: Every claim, in the paper's order.
CLAIMS: tuple[Claim, ...] = (
    *closure_survey.CLAIMS,
    *factorization.CLAIMS,
    *scrambling.CLAIMS,
    *constructive_search.CLAIMS,
    *value_sharing.CLAIMS,
    *activations.CLAIMS,
    *function.CLAIMS,
    *training_lineages.CLAIMS,
)

#: The notebook that tells of each section.
CHAPTERS = {
    closure_survey.SECTION: "01_closure_survey",
    factorization.SECTION: "02_factorization",
    scrambling.SECTION: "03_scrambling",
    constructive_search.SECTION: "04_constructive_search",
    value_sharing.SECTION: "05_value_sharing",
    training_lineages.SECTION: "06_training_lineages",
    activations.SECTION: "07_activations",
    function.SECTION: "08_function",
}

__all__ = [
    "CHAPTERS",
    "CLAIMS",
    "FAILS",
    "HOLDS",
    "NOT_APPLICABLE",
    "NOT_RUN",
    "VERDICTS",
    "Claim",
    "Verdict",
    "judge",
]
