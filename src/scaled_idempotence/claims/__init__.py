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

#: The module of each chapter's notebook, in the paper's order.
_MODULES = {
    "01_closure_survey": closure_survey,
    "02_factorization": factorization,
    "03_scrambling": scrambling,
    "04_constructive_search": constructive_search,
    "05_value_sharing": value_sharing,
    "07_activations": activations,
    "08_function": function,
    "06_training_lineages": training_lineages,
}
#: Every claim, in the paper's order.
CLAIMS: tuple[Claim, ...] = tuple(claim for module in _MODULES.values() for claim in module.CLAIMS)
#: The notebook that tells of each section.
CHAPTERS = {module.SECTION: notebook for notebook, module in _MODULES.items()}

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
