"""Result tables made by hand, in which every claim holds, and for every claim a lie.

They are written as the experiments write them, but nothing of the package computes them: whatever
a verdict says of them is known beforehand.
"""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pandas as pd

from scaled_idempotence.compute.results import ALL_MODELS, write_table

LAYERS, HEADS, GROUPS, D_HEAD = 10, 8, 4, 64
STRONG_HEADS = [(2, 0), (2, 1), (5, 3), (5, 4), (7, 6), (9, 7)]


def attrs(label: str, topology: str = "GQA", **further) -> dict:
    value_heads = {"MHA": HEADS, "GQA": GROUPS, "MQA": 1}[topology]
    return {
        "model": label,
        "norm": "raw",
        "topology": topology,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "n_value_heads": value_heads,
        "d_head": D_HEAD,
        "weights": f"sha256:{label}",
        "package_version": version("scaled-idempotence"),
        **further,
    }


def true_tables(label: str = "planted", topology: str = "GQA") -> dict[str, pd.DataFrame]:
    """Tables of one model in which every claim holds that applies to its topology."""
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    base = pd.DataFrame(every, columns=["layer", "head"])
    strong = np.array([place in STRONG_HEADS for place in every])
    base["closure"] = np.where(strong, 0.95, np.where(base["head"] == 5, 0.02, 0.3))
    alpha = np.where(base["head"] % 3 == 2, 1.0, -1.0)
    several = topology != "MQA"
    tables = {
        "survey": base.assign(
            alpha=alpha,
            return_gain=0.5,
            wrong_v_closure=1e-4 if several else np.nan,
            copying_score=alpha * 0.9,
            effective_rank=50.0,
            trained_rank=1.0,
        ),
        "support": base.assign(
            identity_error=1e-15,
            overlap=0.3,
            random_overlap=0.1,
            latent_closure=base.closure,
            isotropy=np.where(base["head"] == 0, 0.9, 0.8),
        ),
        "factorial": base[["layer", "head"]].assign(
            interaction=0.01 if several else np.nan,
            control_interaction=1e-6 if several else np.nan,
        ),
        "orientation": base.assign(
            permutation_closure=1e-4,
            haar_closure=2e-4,
            permutation_max=0.1,
            haar_max=0.1,
            haar_mean=2e-4,
            null=2.1e-4,
            null_p=1e-9,
            singular_value_error=1e-15,
        ),
        "attainment": _attainment(base, strong),
        "sharing_anchors": base.assign(retrieval_rank=1.0),
        "activations": base.assign(
            group=np.where(strong, "high", np.where(base["head"] == 5, "low", "")),
            matched_low=base["head"] == 5,
            cos2_median=np.where(strong, 0.87, 0.02),
            wrong_v_cos2_median=0.01 if several else np.nan,
        ),
        "function": pd.DataFrame(
            [
                ("together", group, 6, kind, draw, delta)
                for group in ("strong", "all")
                for kind, draw, delta in (
                    ("projected", -1, 0.02), ("random", 0, 0.003), ("random", 1, 0.005),
                    ("zeroed", -1, 0.2),
                )
            ],
            columns=["scope", "group", "n_heads", "intervention", "draw", "delta"],
        ),
    }  # fmt: skip
    pairs = pd.DataFrame(
        {
            "layer": [2, 2, 5, 5, 8],
            "right_closure": [0.95, 0.95, 0.95, 0.95, 0.8],  # the last is below the threshold
            "F": [0.92, 0.93, 0.92, 0.93, 0.1],
            "rho": [0.96, 0.97, 0.96, 0.97, 0.1],
            "control_rho": [0.02, 0.03, 0.02, 0.03, 0.9] if several else np.nan,
            "right_product_closure": [0.9, 0.92, 0.9, 0.92, 0.1],
            "left_product_closure": [0.2, 0.25, 0.2, 0.25, 0.9],
            "residual": [1.0, 1.0, 2.0, 2.0, 9.0],
            "bound": [2.0, 3.0, 4.0, 5.0, 1.0],
        }
    )
    siblings = pd.DataFrame(
        {
            "left_closure": [0.95, 0.95, 0.8],
            "right_closure": [0.95, 0.95, 0.95],
            "band_residual": [0.05, 0.06, 0.9],
            "band_residual_reverse": [0.05, 0.06, 0.9],
            "squared_cosine": [0.5, 0.6, 0.99],
        }
    )
    if topology == "MHA":
        pairs, siblings = pairs.iloc[:0], siblings.iloc[:0]
    tables |= {"sharing_pairs": pairs, "sharing_siblings": siblings}
    threshold = {
        "attainment": 0.9,
        "function": 0.9,
        "sharing_pairs": 0.75,
        "sharing_siblings": 0.75,
    }
    gaps = {  # by step: strong, matched, gap, low, high
        "closure": [(0.02, 0.02, 0.0, -0.01, 0.01), (0.9, 0.4, 0.5, 0.3, 0.6)],
        "capacity": [(0.84, 0.85, -0.01, -0.02, 0.01), (0.98, 0.9, 0.08, 0.01, 0.1)],
        "attainment": [(0.02, 0.02, 0.0, -0.01, 0.01), (0.9, 0.5, 0.4, 0.2, 0.5)],
    }
    tables["trajectory_gaps"] = pd.DataFrame(
        [
            (label, step, step > 0, quantity, *row)
            for quantity, rows in gaps.items()
            for step, row in zip((0, 1000), rows, strict=True)
        ],
        columns=["lineage", "step", "final", "quantity", "strong", "matched", "gap", "low", "high"],
    )
    for name, table in tables.items():
        more = {"threshold": threshold[name]} if name in threshold else {}
        if name in ("activations", "function"):
            more |= {"measured": True, "reason": ""}
        table.attrs = attrs(label, topology, **more)
    return tables


def _attainment(base: pd.DataFrame, strong: np.ndarray) -> pd.DataFrame:
    places = {
        "hash": base["head"].isin([2, 5]) & ~strong,
        "strong": strong,
        "matched": base.layer.isin([2, 5, 7, 9]) & (base["head"] == 2),
    }
    capacity = {"hash": 0.9, "strong": 0.99, "matched": 0.9}
    attainment = {"hash": 0.2, "strong": 0.95, "matched": 0.3}
    return pd.concat(
        [
            base[chosen].assign(sample=name, capacity=capacity[name], attainment=attainment[name])
            for name, chosen in places.items()
        ],
        ignore_index=True,
    )


def without_strong(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same model with no head that reaches the threshold."""
    tables = {name: table.copy() for name, table in tables.items()}
    for table in tables.values():
        for column in ("closure", "left_closure", "right_closure"):
            if column in table:
                table[column] = table[column].clip(upper=0.85)
    attainment = tables["attainment"]
    tables["attainment"] = attainment[attainment["sample"] == "hash"]
    function = tables["function"]
    tables["function"] = function[function.group != "strong"]
    return tables


def write(results_dir, label: str, tables: dict[str, pd.DataFrame]) -> None:
    for name, table in tables.items():
        folder = ALL_MODELS if name == "trajectory_gaps" else label
        write_table(table, results_dir / folder / f"{name}.parquet")


def _set(table: str, where=None, **values):
    """A lie: other values in some columns, everywhere or in some rows."""

    def lie(tables):
        rows = slice(None) if where is None else where(tables[table])
        for column, value in values.items():
            tables[table].loc[rows, column] = value

    return lie


def _strong(table):
    return table.closure >= 0.9


def _sample(name):
    return lambda table: table["sample"] == name


def _moved(group, intervention):
    return lambda table: (table.group == group) & (table.intervention == intervention)


def _at(quantity, step):
    return lambda table: (table.quantity == quantity) & (table.step == step)


#: For each claim, what makes it false and leaves it applicable.
LIES = {
    "survey.strong": _set("survey", closure=0.899),
    "survey.sparse": _set("survey", lambda t: t["head"] == 0, closure=0.95),
    "survey.median": _set("survey", lambda t: ~_strong(t), closure=0.05),
    "survey.wrong_v": _set("survey", wrong_v_closure=0.004),
    "survey.wrong_v_chance": _set("survey", wrong_v_closure=2 / D_HEAD**2),
    "survey.wrong_v_max": _set("survey", lambda t: t.index == 3, wrong_v_closure=0.75),
    "survey.negative": _set("survey", _strong, alpha=1.0),
    "survey.gain": _set("survey", _strong, return_gain=3.0),
    "survey.first": _set("survey", lambda t: t.layer < 5, trained_rank=2.0),
    "survey.rank": _set("survey", lambda t: t.index == 16, effective_rank=1.1),
    "survey.copying": _set("survey", lambda t: t.index == 16, copying_score=0.5),
    "factorization.identity": _set("support", lambda t: t.index == 7, identity_error=1e-9),
    "factorization.isoclinic": _set("support", lambda t: _strong(t), latent_closure=0.89),
    "factorization.latent": _set(
        "support", lambda t: t["head"].isin([0, 3, 4]) & ~_strong(t), latent_closure=0.99
    ),
    "factorization.isotropy": _set("support", _strong, isotropy=0.99),
    "factorization.overlap": _set("support", overlap=0.09),
    "factorial.positive": _set("factorial", lambda t: t.layer < 4, interaction=-0.01),
    "factorial.control": _set("factorial", control_interaction=-0.002),
    "scrambling.permutation": _set("orientation", permutation_closure=0.01),
    "scrambling.haar": _set("orientation", haar_closure=0.01),
    "scrambling.permutation_wins": _set(
        "orientation", lambda t: t["head"] == 1, permutation_closure=0.99
    ),
    "scrambling.haar_wins": _set("orientation", lambda t: t["head"] == 1, haar_closure=0.99),
    "scrambling.layers": _set("orientation", lambda t: t.layer == 4, haar_closure=0.5),
    "scrambling.highest": _set("orientation", lambda t: t.index == 11, haar_max=0.85),
    "scrambling.spectrum": _set("orientation", lambda t: t.index == 11, singular_value_error=1e-11),
    "scrambling.null": _set("orientation", haar_mean=4e-4),
    "scrambling.beyond": _set("orientation", lambda t: t.layer < 5, null_p=0.3),
    "capacity.ordinary": _set("attainment", _sample("hash"), capacity=0.87),
    "capacity.layers": _set(
        "attainment", lambda t: (t.layer == 6) & (t["sample"] == "hash"), capacity=0.79
    ),
    "capacity.unused": _set("attainment", _sample("hash"), attainment=0.6),
    "capacity.strong": _set("attainment", _sample("strong"), capacity=0.98),
    "capacity.gap": _set("attainment", lambda t: t.layer == 2, attainment=0.1),
    "capacity.attained": _set("attainment", _sample("matched"), capacity=0.2),
    "sharing.F": _set("sharing_pairs", F=0.89),
    "sharing.rho": _set("sharing_pairs", rho=1.2),
    "sharing.control": _set("sharing_pairs", control_rho=-0.3),
    "sharing.bound": _set("sharing_pairs", lambda t: t.index == 1, residual=3.1),
    "sharing.left": _set("sharing_pairs", left_product_closure=0.8),
    "sharing.band": _set("sharing_siblings", band_residual_reverse=0.4),
    "sharing.duplicates": _set("sharing_siblings", lambda t: t.index == 1, squared_cosine=0.9),
    "sharing.retrieval": _set("sharing_anchors", lambda t: t.index == 16, retrieval_rank=2.0),
    "activations.high": _set("activations", cos2_median=0.8),
    "activations.low": _set("activations", cos2_median=0.9),
    "activations.wrong_v": _set("activations", wrong_v_cos2_median=0.5),
    "function.strong_zeroed": _set("function", _moved("strong", "zeroed"), delta=0.01),
    "function.all_zeroed": _set("function", _moved("all", "zeroed"), delta=0.01),
    "function.strong_random": _set("function", _moved("strong", "random"), delta=0.03),
    "training.early": _set("trajectory_gaps", _at("capacity", 0), strong=0.95),
    "training.opens": _set("trajectory_gaps", _at("closure", 0), strong=0.32),
    "training.capacity": _set("trajectory_gaps", _at("capacity", 1000), gap=-0.01),
    "training.attainment": _set("trajectory_gaps", _at("attainment", 1000), low=-0.01),
    "training.mostly": _set("trajectory_gaps", _at("capacity", 1000), gap=0.41),
    "function.all_random": _set("function", _moved("all", "random"), delta=0.03),
}
