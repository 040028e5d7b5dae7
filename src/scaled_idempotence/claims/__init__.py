"""The paper's claims as predicates over result tables, for `scaled_idempotence.scoreboard`."""

from __future__ import annotations

from . import behaviour, capacity, factorization, scrambling, sharing, survey, training
from .claim import FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN, VERDICTS, Claim, Verdict, judge

#: Every claim, in the paper's order.
CLAIMS: tuple[Claim, ...] = (
    *survey.CLAIMS,
    *factorization.CLAIMS,
    *scrambling.CLAIMS,
    *capacity.CLAIMS,
    *sharing.CLAIMS,
    *behaviour.CLAIMS,
    *training.CLAIMS,
)

#: The notebook that tells of each section.
CHAPTERS = {
    survey.SECTION: "01_closure_survey",
    factorization.SECTION: "02_factorization",
    scrambling.SECTION: "03_scrambling",
    capacity.SECTION: "04_constructive_search",
    sharing.SECTION: "05_value_sharing",
    training.SECTION: "06_training_lineages",
    behaviour.ACTIVATIONS: "07_activations",
    behaviour.FUNCTION: "08_function",
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
