"""What can come out for a claim: four words, and a symbol for each."""

from __future__ import annotations

HOLDS = "holds"
FAILS = "does not hold"
NOT_APPLICABLE = "does not apply"
NOT_RUN = "not run"
VERDICTS = (HOLDS, FAILS, NOT_APPLICABLE, NOT_RUN)

#: Symbol of each verdict, the same in pictures and tables.
SYMBOLS = {HOLDS: "✓", FAILS: "✗", NOT_APPLICABLE: "–", NOT_RUN: "·"}
