"""Claims on the factorization into core and support, and on their pairing (sections 3 and 4)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from .. import paper
from ..experiments.factorial import layer_interactions
from ..paper import STRONG
from ..statistics import auroc
from .checks import AS_OFTEN, as_often, defined_heads, several_value_heads, strong, strong_heads
from .claim import NEAR, Claim, Figures, Range, measured

SECTION = "Factorization"
ERROR = paper.FACTORIZATION["identity_error_below"]
ISO, POSITIVE = paper.ISOCLINIC, paper.FACTORIAL["positive_layers"]
STAYING = ISO["stay_strong"] / ISO["strong"]


@measured("support", "closure", "identity_error", applies=[defined_heads])
def _error(heads: pd.DataFrame) -> Figures:
    return {"largest_error": heads.dropna(subset="closure").identity_error.max(skipna=False)}


@measured("support", "closure", "overlap", "random_overlap", applies=[defined_heads])
def _overlap(heads: pd.DataFrame) -> Figures:
    return {"ratio": heads.overlap.median() / heads.random_overlap.median()}


@measured("support", "closure", "latent_closure", applies=[strong_heads])
def _stay(heads: pd.DataFrame) -> Figures:
    latent = strong(heads).latent_closure
    stay = np.nan if latent.isna().any() else (latent >= STRONG).sum()
    return {"staying": stay, "strong": len(latent), "share": stay / len(latent)}


@measured("support", "closure", "latent_closure", "isotropy", applies=[strong_heads])
def _auroc(heads: pd.DataFrame) -> Figures:
    heads = heads.dropna(subset="closure")
    positive = heads.closure >= STRONG
    return {name: auroc(heads[name], positive) for name in ("latent_closure", "isotropy")}


@measured("factorial", "interaction", "control_interaction", applies=[several_value_heads])
def _interaction(heads: pd.DataFrame) -> Figures:
    layers = layer_interactions(heads).dropna()
    positive, median = (layers.interaction > 0).sum(), layers.interaction.median()
    control = layers.control_interaction.median()
    return {
        "positive": positive,
        "layers": len(layers),
        "share": positive / len(layers) if len(layers) else np.nan,
        "median": median,
        "control": control,
        "ratio": abs(control / median) if median else np.nan,
    }


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    _claim(
        id="factorization.identity",
        short="P(T) = P_D(K)",
        statement="Closure is a function of the core K and the support D alone (10).",
        criterion=f"computed from the factors and from K and D, P differs by less than {ERROR:.0e} "
        "for every head",
        paper=f"below {ERROR:.0e}",
        measure=_error,
        holds=lambda x: x["largest_error"] < ERROR,
        shown="{largest_error:.0e}",
    ),
    _claim(
        id="factorization.isoclinic",
        short="strong with equal angles",
        statement="Most strong heads stay strong if all their angles were equal.",
        criterion=f"P_I(K) ≥ {STRONG:g} for more than half of the strong heads",
        paper=f"{ISO['stay_strong']:,} of {ISO['strong']:,} ({STAYING:.1%})",
        measure=_stay,
        holds=lambda x: x["share"] > 0.5,
        shown="{staying:.0f} of {strong:.0f} ({share:.1%})",
        reference=Range("share", STAYING, STAYING),
    ),
    _claim(
        id="factorization.latent",
        short="the latent core tells strong heads",
        statement="The closure of the latent core, P_I, tells strong heads from others.",
        criterion=f"the area under its ROC curve is at least {1 - NEAR:g}",
        paper=f"{ISO['auroc_latent']:.3f}",
        measure=_auroc,
        holds=lambda x: x["latent_closure"] >= 1 - NEAR,
        shown="{latent_closure:.3f}",
        reference=Range.of("latent_closure", [ISO["auroc_latent"]]),
    ),
    _claim(
        id="factorization.isotropy",
        short="... better than the angles do",
        statement="P_I tells strong heads better than the isotropy of the angles does.",
        criterion="the area under the ROC curve of P_I is larger than that of I_D",
        paper=f"{ISO['auroc_latent']:.3f} against {ISO['auroc_isotropy']:.3f}",
        measure=_auroc,
        holds=lambda x: x["latent_closure"] > x["isotropy"],
        shown="{latent_closure:.4f} against {isotropy:.4f}",
    ),
    _claim(
        id="factorization.overlap",
        short="subspaces overlap more than random",
        statement="The subspaces that a head reads and writes overlap more than random ones.",
        criterion="the median overlap is above r/d",
        measure=_overlap,
        holds=lambda x: x["ratio"] > 1,
        shown="{ratio:.2f} times r/d",
    ),
    _claim(
        id="factorial.positive",
        short="core and support belong together",
        statement="The interaction of core and support (21) is positive in nearly all layers.",
        criterion=f"not in fewer layers than {POSITIVE[0]:.1%}, the paper's lowest, {AS_OFTEN}",
        paper=f"{POSITIVE[0]:.1%} to {POSITIVE[1]:.0%} of layers",
        measure=_interaction,
        holds=lambda x: as_often(x["positive"], x["layers"], POSITIVE[0]),
        shown="{positive:.0f} of {layers:.0f} layers ({share:.1%})",
        reference=Range("share", *POSITIVE),
    ),
    _claim(
        id="factorial.control",
        short="... and not with a wrong V",
        statement="With a wrong V the interaction is about zero.",
        criterion=f"the median over layers is, in size, at most {NEAR:g} of that of trained pairs",
        paper="about zero",
        measure=_interaction,
        holds=lambda x: x["ratio"] <= NEAR,
        shown="{control:.1e} against {median:.1e}",
    ),
)
