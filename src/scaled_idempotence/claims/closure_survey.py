"""Claims of the closure survey (section 2)."""

from __future__ import annotations

import numpy as np

from .. import paper
from ..paper import STRONG, THRESHOLDS
from .checks import defined_heads, several_value_heads, strong, strong_heads
from .claim import NEAR, VANISHING, Claim, Figures, Tables

SECTION = "Closure survey"
ENDPOINTS, FIGURES = paper.ENDPOINTS, paper.SURVEY
MEDIANS = ENDPOINTS.loc[:, "median"]
SHARES = ENDPOINTS.strong / ENDPOINTS.heads
#: Wrong-V medians in units of what a random pairing of the same head dimension has.
CHANCE = ENDPOINTS.wrong_v_median * paper.HEAD_DIMENSIONS**2
#: A head of lower effective rank closes trivially: a rank-one operator always does.
TRIVIAL_RANK = 2


def _strong(tables: Tables) -> Figures:
    heads = tables["survey"].dropna(subset="closure")
    n = len(strong(heads))
    return {"strong": n, "heads": len(heads), "share": n / len(heads)}


def _wrong_v(tables: Tables) -> Figures:
    heads = tables["survey"]
    median = heads.wrong_v_closure.median()
    return {
        "median": median,
        "multiple": median * heads.attrs["d_head"] ** 2,
        "share": median / heads.closure.median(),
        "highest": heads.wrong_v_closure.max(),
    }


def _negative(tables: Tables) -> Figures:
    alpha = strong(tables["survey"]).alpha
    if alpha.isna().any():
        return {"share_of_negative_alpha": np.nan}
    return {"negative": (alpha < 0).sum(), "strong": len(alpha), "share": (alpha < 0).mean()}


def _first(tables: Tables) -> Figures:
    rank = tables["survey"].trained_rank.dropna()
    n = tables["survey"].attrs["n_value_heads"]
    return {"share": (rank == 1).mean(), "value_heads": n, "chance": 1 / n}


def _sign(tables: Tables) -> Figures:
    heads = strong(tables["survey"])
    alpha, copying = np.sign(heads.alpha), np.sign(heads.copying_score)
    undefined = (alpha.isna() | copying.isna()).any()
    agree = np.nan if undefined else (alpha == copying).sum()
    return {"agreeing": agree, "strong": len(heads)}


_wrong = (defined_heads("survey"), several_value_heads("survey"))
_low, _high = FIGURES["negative_alpha"]

CLAIMS = (
    Claim(
        id="survey.strong",
        section=SECTION,
        short="strong heads exist",
        statement=f"Some trained heads are nearly scaled idempotents: P ≥ {STRONG:g}.",
        criterion=f"at least one head has P ≥ {STRONG:g}",
        paper=f"{ENDPOINTS.strong.min()} to {ENDPOINTS.strong.max()} heads of each model",
        needs={"survey": ("closure",)},
        measure=_strong,
        holds=lambda x: x["strong"] >= 1,
        shown="{strong:.0f} of {heads:.0f}",
        applies=(defined_heads("survey"),),
    ),
    Claim(
        id="survey.sparse",
        section=SECTION,
        short="strong heads are sparse",
        statement="Where there are strong heads, they are few.",
        criterion=f"fewer than one head in ten has P ≥ {STRONG:g}: the 90% quantile of P is below "
        "it, as in all of the paper's models",
        paper=f"{SHARES.min():.1%} to {SHARES.max():.1%}",
        needs={"survey": ("closure",)},
        measure=_strong,
        holds=lambda x: 0 < x["share"] < 0.1,
        shown="{share:.1%}",
        applies=(defined_heads("survey"), strong_heads("survey")),
        reference=("share", SHARES.min(), SHARES.max()),
    ),
    Claim(
        id="survey.median",
        section=SECTION,
        short="the median head is in between",
        statement="The typical head is neither closed nor at chance.",
        criterion=f"the median of P is above {NEAR:g} and below {min(THRESHOLDS):g}, the lowest "
        "threshold of the sweep",
        paper=f"{MEDIANS.min():.4f} to {MEDIANS.max():.4f}",
        needs={"survey": ("closure",)},
        measure=lambda t: {"median": t["survey"].closure.median()},
        holds=lambda x: NEAR < x["median"] < min(THRESHOLDS),
        shown="{median:.4f}",
        applies=(defined_heads("survey"),),
        reference=("median", MEDIANS.min(), MEDIANS.max()),
    ),
    Claim(
        id="survey.wrong_v",
        section=SECTION,
        short="a wrong V takes closure away",
        statement="With the next value head in place of its own, a head's closure vanishes.",
        criterion=f"the median with a wrong V is at most {VANISHING:.0%} of the trained median",
        paper=f"{(ENDPOINTS.wrong_v_median / ENDPOINTS['median']).min():.3%} to "
        f"{(ENDPOINTS.wrong_v_median / ENDPOINTS['median']).max():.3%} of it",
        needs={"survey": ("closure", "wrong_v_closure")},
        measure=_wrong_v,
        holds=lambda x: x["share"] <= VANISHING,
        shown="{share:.3%} of it",
        applies=_wrong,
    ),
    Claim(
        id="survey.wrong_v_chance",
        section=SECTION,
        short="... to the level of chance",
        statement="What a wrong V leaves is what a random pairing has, about 1/r².",
        criterion=f"the wrong-V median is at most {CHANCE.max():.2f}/r², the most in the paper's "
        "six models; r differs between models, so medians are not compared as they are",
        paper=f"{ENDPOINTS.wrong_v_median.min():.1e} to {ENDPOINTS.wrong_v_median.max():.1e}: "
        f"{CHANCE.min():.2f}/r² to {CHANCE.max():.2f}/r²",
        needs={"survey": ("closure", "wrong_v_closure")},
        measure=_wrong_v,
        holds=lambda x: x["multiple"] <= CHANCE.max(),
        shown="{median:.1e}: {multiple:.2f}/r²",
        applies=_wrong,
        reference=("multiple", CHANCE.min(), CHANCE.max()),
    ),
    Claim(
        id="survey.wrong_v_max",
        section=SECTION,
        short=f"no wrong V reaches {FIGURES['wrong_v_below']:g}",
        statement=f"No wrong-V pairing at all reaches P = {FIGURES['wrong_v_below']:g}.",
        criterion=f"the highest is below {FIGURES['wrong_v_below']:g}",
        paper=f"below {FIGURES['wrong_v_below']:g}",
        needs={"survey": ("closure", "wrong_v_closure")},
        measure=_wrong_v,
        holds=lambda x: x["highest"] < FIGURES["wrong_v_below"],
        shown="{highest:.3f}",
        applies=_wrong,
    ),
    Claim(
        id="survey.negative",
        section=SECTION,
        short="most strong heads have α < 0",
        statement="Most strong heads write the opposite of what they read back.",
        criterion="more than half of the strong heads have a negative α",
        paper=f"{_low:.0%} to {_high:.0%} (13B to 235B)",
        needs={"survey": ("closure", "alpha")},
        measure=_negative,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.0%}: {negative:.0f} of {strong:.0f}",
        applies=(strong_heads("survey"),),
        reference=("share", _low, _high),
    ),
    Claim(
        id="survey.gain",
        section=SECTION,
        short="return gain as in the paper",
        statement="The return gain of strong heads differs between models by almost two orders of "
        "magnitude; this model's lies between the paper's extremes.",
        criterion="the median over strong heads is in the range of the paper's model medians",
        paper="{:g} to {:g}".format(*FIGURES["return_gain_medians"]),
        needs={"survey": ("closure", "return_gain")},
        measure=lambda t: {"median": strong(t["survey"]).return_gain.median(skipna=False)},
        holds=lambda x: (
            FIGURES["return_gain_medians"][0] <= x["median"] <= FIGURES["return_gain_medians"][1]
        ),
        shown="{median:.3g}",
        applies=(strong_heads("survey"),),
        reference=("median", *FIGURES["return_gain_medians"]),
    ),
    Claim(
        id="survey.first",
        section=SECTION,
        short="the trained V ranks first",
        statement="Among all value heads of its layer, the trained one gives a head its highest "
        "closure.",
        criterion="for more than half of the heads",
        paper="",
        needs={"survey": ("trained_rank",)},
        measure=_first,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.1%} (by chance {chance:.1%})",
        applies=(several_value_heads("survey"),),
    ),
    Claim(
        id="survey.rank",
        section=SECTION,
        short="no strong head is trivial",
        statement="Strong heads do not close because their rank is one.",
        criterion=f"every strong head has an effective rank of at least {TRIVIAL_RANK}",
        paper="",
        needs={"survey": ("closure", "effective_rank")},
        measure=lambda t: {"lowest": strong(t["survey"]).effective_rank.min(skipna=False)},
        holds=lambda x: x["lowest"] >= TRIVIAL_RANK,
        shown="at least {lowest:.1f}",
        applies=(strong_heads("survey"),),
    ),
    Claim(
        id="survey.copying",
        section=SECTION,
        short="α has the copying score's sign",
        statement="The sign of α is that of the copying score.",
        criterion="for every strong head",
        paper="",
        needs={"survey": ("closure", "alpha", "copying_score")},
        measure=_sign,
        holds=lambda x: x["agreeing"] == x["strong"],
        shown="{agreeing:.0f} of {strong:.0f}",
        applies=(strong_heads("survey"),),
    ),
)
