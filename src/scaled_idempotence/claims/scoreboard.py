"""The scoreboard: every claim of the paper against every model that has result tables.

Models are found by their folders below ``results``; one that `scaled-idempotence run` adds appears
by itself. A table that is missing, damaged, of another version or of other weights leads to the
verdict "not run" with a remark, never to a guess.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from ..compute.results import ALL_MODELS
from . import CLAIMS, NOT_RUN, VERDICTS, Claim, Verdict, judge
from .tables import ResultTables, TableFault, lineages, result_tables

#: Stands in the model's place where no lineage was followed.
NO_LINEAGE = "training lineages"
#: What a row repeats of its claim.
_SAID = ("section", "short", "statement", "criterion", "origin", "paper", "subject")


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
        ``"ours"`` for what goes beyond it), ``paper`` (its figure), ``subject`` (``"model"``, or
        ``"lineage"`` for claims on training, whose rows have a lineage for a model), ``model``,
        ``ours``,
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
    of_all = ResultTables(Path(results_dir) / ALL_MODELS)
    rows = []
    for claim in CLAIMS if models or of_all.folder.is_dir() else ():
        if claim.subject == "model":
            rows += [_row(claim, model.label, _decide(claim, model)) for model in models]
        else:
            rows += _lineage_rows(claim, of_all)
    columns = ["claim", *_SAID, "model", "ours", "verdict", "place", "remark"]
    board = pd.DataFrame(rows, columns=columns)
    board["verdict"] = pd.Categorical(board.verdict, VERDICTS)
    return board


def _decide(claim: Claim, source: ResultTables, lineage: str | None = None) -> Verdict:
    try:
        tables = {name: source.table(name, columns) for name, columns in claim.needs.items()}
    except TableFault as fault:
        return Verdict(NOT_RUN, remark=str(fault))
    if lineage is not None:
        tables = {name: table.loc[table.lineage == lineage] for name, table in tables.items()}
    try:
        return judge(claim, tables)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Columns of the right names can still hold what no experiment writes.
        what = f"{type(error).__name__}: {error}".splitlines()[0][:80]
        return Verdict(NOT_RUN, remark=f"unreadable: {', '.join(claim.needs)} ({what})")


def _lineage_rows(claim: Claim, source: ResultTables) -> list[dict[str, str]]:
    try:
        names = lineages(source.folder.parent)
    except TableFault as fault:
        return [_row(claim, NO_LINEAGE, Verdict(NOT_RUN, remark=str(fault)))]
    if not names:
        return [_row(claim, NO_LINEAGE, Verdict(NOT_RUN, remark="the table has no lineage"))]
    return [_row(claim, name, _decide(claim, source, name)) for name in names]


def _row(claim: Claim, name: str, found: Verdict) -> dict[str, str]:
    said = {key: str(getattr(claim, key)) for key in _SAID}
    return {"claim": claim.id, **said, "model": name, **asdict(found)}


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
