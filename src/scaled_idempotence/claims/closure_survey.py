"""Claims of the closure survey (section 2)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from .. import paper
from ..paper import STRONG, THRESHOLDS
from .checks import defined_heads, several_value_heads, strong, strong_heads
from .claim import NEAR, VANISHING, Claim, Figures, Range, measured

SECTION = "Closure survey"
ENDPOINTS, FIGURES = paper.ENDPOINTS, paper.SURVEY
SHARES = ENDPOINTS.strong / ENDPOINTS.heads
GAINS = Range.of("median", FIGURES["return_gain_medians"], "g")
#: Wrong-V medians in units of what a random pairing of the same head dimension has.
CHANCE = ENDPOINTS.wrong_v_median * paper.HEAD_DIMENSIONS**2
#: A head of lower effective rank closes trivially: a rank-one operator always does.
TRIVIAL_RANK = 2


def _counts(heads: pd.DataFrame) -> Figures:
    heads = heads.dropna(subset="closure")
    n = len(strong(heads))
    return {"strong": n, "heads": len(heads), "share": n / len(heads)}


_any = measured("survey", "closure", applies=[defined_heads])(_counts)
_some = measured("survey", "closure", applies=[defined_heads, strong_heads])(_counts)


@measured("survey", "closure", applies=[defined_heads])
def _median(heads: pd.DataFrame) -> Figures:
    return {"median": heads.closure.median()}


@measured("survey", "closure", "wrong_v_closure", applies=[defined_heads, several_value_heads])
def _wrong_v(heads: pd.DataFrame) -> Figures:
    median = heads.wrong_v_closure.median()
    return {
        "median": median,
        "multiple": median * heads.attrs["d_head"] ** 2,
        "share": median / heads.closure.median(),
        "highest": heads.wrong_v_closure.max(),
    }


@measured("survey", "closure", "alpha", applies=[strong_heads])
def _negative(heads: pd.DataFrame) -> Figures:
    alpha = strong(heads).alpha
    if alpha.isna().any():
        return {"share_of_negative_alpha": np.nan}
    return {"negative": (alpha < 0).sum(), "strong": len(alpha), "share": (alpha < 0).mean()}


@measured("survey", "closure", "return_gain", applies=[strong_heads])
def _gain(heads: pd.DataFrame) -> Figures:
    return {"median": strong(heads).return_gain.median(skipna=False)}


@measured("survey", "trained_rank", applies=[several_value_heads])
def _first(heads: pd.DataFrame) -> Figures:
    n = heads.attrs["n_value_heads"]
    return {"share": (heads.trained_rank.dropna() == 1).mean(), "chance": 1 / n}


@measured("survey", "closure", "effective_rank", applies=[strong_heads])
def _rank(heads: pd.DataFrame) -> Figures:
    return {"lowest": strong(heads).effective_rank.min(skipna=False)}


@measured("survey", "closure", "alpha", "copying_score", applies=[strong_heads])
def _sign(heads: pd.DataFrame) -> Figures:
    heads = strong(heads)
    alpha, copying = np.sign(heads.alpha), np.sign(heads.copying_score)
    undefined = (alpha.isna() | copying.isna()).any()
    return {"agreeing": np.nan if undefined else (alpha == copying).sum(), "strong": len(heads)}


_claim = partial(Claim, section=SECTION)

CLAIMS = (
    _claim(
        id="survey.strong",
        short="strong heads exist",
        statement=f"Some trained heads are nearly scaled idempotents: P ≥ {STRONG:g}.",
        criterion=f"at least one head has P ≥ {STRONG:g}",
        paper=f"{ENDPOINTS.strong.min()} to {ENDPOINTS.strong.max()} heads of each model",
        measure=_any,
        holds=lambda x: x["strong"] >= 1,
        shown="{strong:.0f} of {heads:.0f}",
    ),
    _claim(
        id="survey.sparse",
        short="strong heads are sparse",
        statement="Where there are strong heads, they are few.",
        criterion=f"fewer than one head in ten has P ≥ {STRONG:g}: the 90% quantile of P is below "
        "it, as in all of the paper's models",
        paper=Range.of("share", SHARES, ".1%"),
        measure=_some,
        holds=lambda x: 0 < x["share"] < 0.1,
        shown="{share:.1%}",
    ),
    _claim(
        id="survey.median",
        short="the median head is in between",
        statement="The typical head is neither closed nor at chance.",
        criterion=f"the median of P is above {NEAR:g} and below {min(THRESHOLDS):g}, the lowest "
        "threshold of the sweep",
        paper=Range.of("median", ENDPOINTS["median"], ".4f"),
        measure=_median,
        holds=lambda x: NEAR < x["median"] < min(THRESHOLDS),
        shown="{median:.4f}",
    ),
    _claim(
        id="survey.wrong_v",
        short="a wrong V takes closure away",
        statement="With the next value head in place of its own, a head's closure vanishes.",
        criterion=f"the median with a wrong V is at most {VANISHING:.0%} of the trained median",
        paper=str(Range.of("", ENDPOINTS.wrong_v_median / ENDPOINTS["median"], ".3%", " of it")),
        measure=_wrong_v,
        holds=lambda x: x["share"] <= VANISHING,
        shown="{share:.3%} of it",
    ),
    _claim(
        id="survey.wrong_v_chance",
        short="... to the level of chance",
        statement="What a wrong V leaves is what a random pairing has, about 1/r².",
        criterion=f"the wrong-V median is at most {CHANCE.max():.2f}/r², the most in the paper's "
        "six models; r differs between models, so medians are not compared as they are",
        paper=f"{Range.of('median', ENDPOINTS.wrong_v_median, '.1e')}: "
        f"{CHANCE.min():.2f}/r² to {CHANCE.max():.2f}/r²",
        measure=_wrong_v,
        holds=lambda x: x["multiple"] <= CHANCE.max(),
        shown="{median:.1e}: {multiple:.2f}/r²",
        reference=Range.of("multiple", CHANCE),
    ),
    _claim(
        id="survey.wrong_v_max",
        short=f"no wrong V reaches {FIGURES['wrong_v_below']:g}",
        statement=f"No wrong-V pairing at all reaches P = {FIGURES['wrong_v_below']:g}.",
        criterion=f"the highest is below {FIGURES['wrong_v_below']:g}",
        paper=f"below {FIGURES['wrong_v_below']:g}",
        measure=_wrong_v,
        holds=lambda x: x["highest"] < FIGURES["wrong_v_below"],
        shown="{highest:.3f}",
    ),
    _claim(
        id="survey.negative",
        short="most strong heads have α < 0",
        statement="Most strong heads write the opposite of what they read back.",
        criterion="more than half of the strong heads have a negative α",
        paper=Range.of("share", FIGURES["negative_alpha"], ".0%", " (13B to 235B)"),
        measure=_negative,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.0%}: {negative:.0f} of {strong:.0f}",
    ),
    _claim(
        id="survey.gain",
        short="return gain as in the paper",
        statement="The return gain of strong heads differs between models by almost two orders of "
        "magnitude; this model's lies between the paper's extremes.",
        criterion="the median over strong heads is in the range of the paper's model medians",
        paper=GAINS,
        measure=_gain,
        holds=lambda x: GAINS.low <= x["median"] <= GAINS.high,
        shown="{median:.3g}",
    ),
    _claim(
        id="survey.first",
        short="the trained V ranks first",
        statement="Among all value heads of its layer, the trained one gives a head its highest "
        "closure.",
        criterion="for more than half of the heads",
        measure=_first,
        holds=lambda x: x["share"] > 0.5,
        shown="{share:.1%} (by chance {chance:.1%})",
    ),
    _claim(
        id="survey.rank",
        short="no strong head is trivial",
        statement="Strong heads do not close because their rank is one.",
        criterion=f"every strong head has an effective rank of at least {TRIVIAL_RANK}",
        measure=_rank,
        holds=lambda x: x["lowest"] >= TRIVIAL_RANK,
        shown="at least {lowest:.1f}",
    ),
    _claim(
        id="survey.copying",
        short="α has the copying score's sign",
        statement="The sign of α is that of the copying score.",
        criterion="for every strong head",
        measure=_sign,
        holds=lambda x: x["agreeing"] == x["strong"],
        shown="{agreeing:.0f} of {strong:.0f}",
    ),
)
