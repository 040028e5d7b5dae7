"""The scoreboard: every claim of the paper against every model that has result tables.

Models are found by their folders below ``results``; one that `scaled-idempotence run` adds appears
by itself. A table that is missing, damaged, of another version or of other weights leads to the
verdict "not run" with a remark, never to a guess.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from . import CLAIMS, NOT_RUN, VERDICTS, Claim, Verdict, judge
from .tables import ResultTables, TableFault, result_tables


def scoreboard(results_dir: str | Path = "results") -> pd.DataFrame:
    """Decide every claim of the paper for every model that has result tables.

    Parameters
    ----------
    results_dir : str or Path
        Where `scaled-idempotence run` and the experiments' ``results_dir`` put them.

    Returns
    -------
    DataFrame
        A row a claim and model, claims in the paper's order: ``claim`` (its id), ``section``,
        ``short``, ``statement``, ``criterion`` (what "holds" means), ``origin`` (``"paper"``, or
        ``"ours"`` for what goes beyond it), ``paper`` (its figure), ``model``, ``ours``,
        ``verdict`` (``"holds"``, ``"does not hold"``, ``"does not apply"`` or ``"not run"``),
        ``place`` (how the figure lies to the range of the paper's models) and ``remark`` (why there
        is none).

    Notes
    -----
    A figure that is not defined never holds. All criteria are at the paper's threshold of strong
    heads, whatever threshold tables were computed with.

    Examples
    --------
    >>> import scaled_idempotence as si
    >>> si.scoreboard("there/is/nothing").verdict.tolist()
    []
    """
    models = result_tables(results_dir)
    rows = [_row(claim, tables) for claim in CLAIMS for tables in models]
    columns = [
        "claim", "section", "short", "statement", "criterion", "origin", "paper", "model",
        "ours", "verdict", "place", "remark",
    ]  # fmt: skip
    board = pd.DataFrame(rows, columns=columns)
    board["verdict"] = pd.Categorical(board.verdict, VERDICTS)
    return board


def _row(claim: Claim, source: ResultTables) -> dict[str, str]:
    try:
        tables = {name: source.table(name, columns) for name, columns in claim.needs.items()}
        found = judge(claim, tables)
    except TableFault as fault:
        found = Verdict(NOT_RUN, remark=str(fault))
    return {
        "claim": claim.id,
        "section": claim.section,
        "short": claim.short,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "origin": claim.origin,
        "paper": claim.paper,
        "model": source.label,
        "ours": found.ours,
        "verdict": found.verdict,
        "place": found.place,
        "remark": found.remark,
    }


def counts(board: pd.DataFrame) -> pd.DataFrame:
    """Count verdicts by model.

    Parameters
    ----------
    board : DataFrame
        From `scoreboard`.

    Returns
    -------
    DataFrame
        A row a model, a column a verdict, all verdicts present.
    """
    table = pd.crosstab(board.model, board.verdict, dropna=False)
    return table.reindex(columns=list(VERDICTS), fill_value=0)
