"""Claims on the factorization into core and support, and on their pairing (sections 3 and 4)."""

from __future__ import annotations

import numpy as np

from .. import paper
from ..experiments.factorial import layer_interactions
from ..paper import STRONG
from ..statistics import auroc
from .checks import (
    AS_OFTEN,
    as_often,
    defined_heads,
    several_value_heads,
    strong,
    strong_heads,
)
from .claim import NEAR, Claim, Figures, Tables

SECTION = "Factorization"
ERROR = paper.FACTORIZATION["identity_error_below"]
ISO, POSITIVE = paper.ISOCLINIC, paper.FACTORIAL["positive_layers"]


def _error(tables: Tables) -> Figures:
    heads = tables["support"].dropna(subset="closure")
    return {"largest_error": heads.identity_error.max(skipna=False)}


def _overlap(tables: Tables) -> Figures:
    heads = tables["support"]
    return {"ratio": heads.overlap.median() / heads.random_overlap.median()}


def _stay(tables: Tables) -> Figures:
    latent = strong(tables["support"]).latent_closure
    stay = np.nan if latent.isna().any() else (latent >= STRONG).sum()
    return {"staying": stay, "strong": len(latent), "share": stay / len(latent)}


def _auroc(tables: Tables) -> Figures:
    heads = tables["support"].dropna(subset="closure")
    positive = heads.closure >= STRONG
    return {name: auroc(heads[name], positive) for name in ("latent_closure", "isotropy")}


def _interaction(tables: Tables) -> Figures:
    layers = layer_interactions(tables["factorial"]).dropna()
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


_defined, _strong = (defined_heads("support"),), (strong_heads("support"),)
_crossed = {"factorial": ("interaction", "control_interaction")}
_donors = (several_value_heads("factorial"),)

CLAIMS = (
    Claim(
        id="factorization.identity",
        section=SECTION,
        short="P(T) = P_D(K)",
        statement="Closure is a function of the core K and the support D alone (10).",
        criterion=f"computed from the factors and from K and D, P differs by less than {ERROR:.0e} "
        "for every head",
        paper=f"below {ERROR:.0e}",
        needs={"support": ("closure", "identity_error")},
        measure=_error,
        holds=lambda x: x["largest_error"] < ERROR,
        shown="{largest_error:.0e}",
        applies=_defined,
    ),
    Claim(
        id="factorization.isoclinic",
        section=SECTION,
        short="strong with equal angles",
        statement="Most strong heads stay strong if all their angles were equal.",
        criterion=f"P_I(K) ≥ {STRONG:g} for more than half of the strong heads",
        paper=f"{ISO['stay_strong']:,} of {ISO['strong']:,} "
        f"({ISO['stay_strong'] / ISO['strong']:.1%})",
        needs={"support": ("closure", "latent_closure")},
        measure=_stay,
        holds=lambda x: x["share"] > 0.5,
        shown="{staying:.0f} of {strong:.0f} ({share:.1%})",
        applies=_strong,
        reference=("share", *2 * [ISO["stay_strong"] / ISO["strong"]]),
    ),
    Claim(
        id="factorization.latent",
        section=SECTION,
        short="the latent core tells strong heads",
        statement="The closure of the latent core, P_I, tells strong heads from others.",
        criterion=f"the area under its ROC curve is at least {1 - NEAR:g}",
        paper=f"{ISO['auroc_latent']:.3f}",
        needs={"support": ("closure", "latent_closure", "isotropy")},
        measure=_auroc,
        holds=lambda x: x["latent_closure"] >= 1 - NEAR,
        shown="{latent_closure:.3f}",
        applies=_strong,
        reference=("latent_closure", *2 * [ISO["auroc_latent"]]),
    ),
    Claim(
        id="factorization.isotropy",
        section=SECTION,
        short="... better than the angles do",
        statement="P_I tells strong heads better than the isotropy of the angles does.",
        criterion="the area under the ROC curve of P_I is larger than that of I_D",
        paper=f"{ISO['auroc_latent']:.3f} against {ISO['auroc_isotropy']:.3f}",
        needs={"support": ("closure", "latent_closure", "isotropy")},
        measure=_auroc,
        holds=lambda x: x["latent_closure"] > x["isotropy"],
        shown="{latent_closure:.4f} against {isotropy:.4f}",
        applies=_strong,
    ),
    Claim(
        id="factorization.overlap",
        section=SECTION,
        short="subspaces overlap more than random",
        statement="The subspaces that a head reads and writes overlap more than random ones.",
        criterion="the median overlap is above r/d",
        paper="",
        needs={"support": ("closure", "overlap", "random_overlap")},
        measure=_overlap,
        holds=lambda x: x["ratio"] > 1,
        shown="{ratio:.2f} times r/d",
        applies=_defined,
    ),
    Claim(
        id="factorial.positive",
        section=SECTION,
        short="core and support belong together",
        statement="The interaction of core and support (21) is positive in nearly all layers.",
        criterion=f"not in fewer layers than {POSITIVE[0]:.1%}, the paper's lowest, {AS_OFTEN}",
        paper=f"{POSITIVE[0]:.1%} to {POSITIVE[1]:.0%} of layers",
        needs=_crossed,
        measure=_interaction,
        holds=lambda x: as_often(x["positive"], x["layers"], POSITIVE[0]),
        shown="{positive:.0f} of {layers:.0f} layers ({share:.1%})",
        applies=_donors,
        reference=("share", *POSITIVE),
    ),
    Claim(
        id="factorial.control",
        section=SECTION,
        short="... and not with a wrong V",
        statement="With a wrong V the interaction is about zero.",
        criterion=f"the median over layers is, in size, at most {NEAR:g} of that of trained pairs",
        paper="about zero",
        needs=_crossed,
        measure=_interaction,
        holds=lambda x: x["ratio"] <= NEAR,
        shown="{control:.1e} against {median:.1e}",
        applies=_donors,
    ),
)
