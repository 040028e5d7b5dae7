# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   scaled_idempotence:
#     reads: results
#     scope: once
# ---

# %% [markdown]
# # Scoreboard
#
# The paper makes its claims about models of up to 235 billion parameters. Which of them hold for the
# models of this book?
#
# > *Every quantitative claim as one predicate over result tables: what does the paper say, what is it
# > here, and is it so?*
#
# No verdict on this page was written by a person. Each claim is a small function of the tables that the
# other chapters wrote; a model that `scaled-idempotence run` adds gets a column by itself.

# %% tags=["bootstrap", "hide-cell"]
# On Colab, or wherever the package is missing, install it. SCALED_IDEMPOTENCE_SOURCE can name a
# local wheel or folder to install from in place of the repository.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("scaled_idempotence") is None:
    source = os.environ.get(
        "SCALED_IDEMPOTENCE_SOURCE",
        "git+https://github.com/scaled-idempotence/scaled-idempotence",
    )
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], check=True)

# %% tags=["parameters", "hide-input"]
results_dir = "results"  # tables of all models, <results_dir>/<model>/

# %% tags=["hide-input"]
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.claims import CLAIMS, FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN
from scaled_idempotence.claims.scoreboard import NO_LINEAGE, counts
from scaled_idempotence.claims.tables import combined, lineage_groups, sign_shares
from scaled_idempotence.paper import STRONG
from scaled_idempotence.publish.verdicts import SYMBOLS, section_table

si.plots.set_theme()
board = si.scoreboard(results_dir)
of_models, of_lineages = (board[board.subject == kind] for kind in ("model", "lineage"))
models = list(dict.fromkeys(of_models.model))
lineages = [name for name in dict.fromkeys(of_lineages.model) if name != NO_LINEAGE]
decided = board[board.verdict.isin([HOLDS, FAILS])]

if len(board):
    tally = board.verdict.value_counts()
    failing = board[board.verdict == FAILS]
    lines = [
        f"**{board.claim.nunique()} claims; {len(models)} "
        f"{'model' if len(models) == 1 else 'models'}, {len(lineages)} training "
        f"{'lineage' if len(lineages) == 1 else 'lineages'}. Of {len(decided)} verdicts that could be "
        f"reached, {tally[HOLDS]} are that the claim {HOLDS} and {tally[FAILS]} that it {FAILS}.** In "
        f"{tally[NOT_APPLICABLE]} cases a claim {NOT_APPLICABLE}, and in {tally[NOT_RUN]} there are no "
        "tables to decide it."
    ]
    if len(failing):
        lines.append(
            "What does not hold: "
            + "; ".join(
                f"*{rows.short.iloc[0]}* ({', '.join(rows.model)})"
                for _, rows in failing.groupby("claim", sort=False)
            )
            + "."
        )
else:
    lines = [
        f"There are no result tables in `{results_dir}`. `scaled-idempotence run smollm2-135m` makes "
        "those of one model; then run this page again."
    ]
display(Markdown("\n\n".join(lines)))

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Every claim against every model. Claims in italics go beyond the paper. A claim does not apply where a model lacks what it is about, such as a second value head or a strong head."}, "image": {"alt": "Map of verdicts, claims as rows below their sections and models as columns, each cell with a colour and a symbol for holds, does not hold, does not apply or not run"}}
if models:
    display(si.plots.claims_map(of_models))

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The claims on training, against every lineage that was followed."}, "image": {"alt": "Map of verdicts for the claims on training, lineages as columns, each cell with a colour and a symbol"}}
if lineages:
    display(si.plots.claims_map(of_lineages))

# %% [markdown]
# ## How to read a verdict
#
# The paper's figures are medians and shares over models that are ten to a thousand times larger. A claim is
# read here as what it says of *a* model, and the reading stands under each claim, with every threshold.
# "Nearly all" of a few heads is a matter of chance, so shares are tested for being lower than the paper's
# and not compared as numbers. Beside a verdict the tables say how the figure lies to the range of the
# paper's models: a claim can hold with a figure that is outside of it.
#
# **Does not apply** is no mild form of *does not hold*. A model without strong heads says nothing on what
# strong heads do; that it has none is a verdict of its own, the first. A figure that is not defined never
# holds.

# %% tags=["hide-input"]
if len(board):
    display(
        counts(board)
        .rename(columns={verdict: f"{symbol} {verdict}" for verdict, symbol in SYMBOLS.items()})
        .rename_axis(index=None, columns=None)
        .style.set_caption("Verdicts by model and lineage")
    )
faults = board[(board.verdict == NOT_RUN) & (board.remark != "")]
if len(faults):
    listed = faults.groupby("remark", sort=False).model.unique()
    display(
        Markdown(
            "Why claims were not run:\n\n"
            + "\n".join(f"- {remark} ({', '.join(of)})" for remark, of in listed.items())
        )
    )

# %% [markdown]
# ## The claims, section by section
#
# Models are linked to their own chapters.

# %% tags=["hide-input"]
if lineages:
    display(
        Markdown(
            "In the lineages that were followed, the heads that *end strong* are "
            f"{lineage_groups(results_dir)}."
        )
    )
for section in dict.fromkeys(board.section):
    display(Markdown(f"### {section}"))
    display(section_table(board, section, results_dir))

# %% [markdown]
# ## Models compared
#
# ### Closure
#
# A model's distribution of closure says more than its count of strong heads. Of the paper's six models
# the median, the 90% quantile and the highest head are known.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure of all heads. Above the line the models of this book, below it the paper's six, of which three quantiles are known. Dotted: strong heads."}, "image": {"alt": "Distribution of closure by model with median, 90 percent quantile and highest head, and the same marks for the paper's six models"}}
heads = combined(results_dir, "survey", ("closure", "alpha"))
if len(heads):
    display(si.plots.closure_by_model(heads, si.paper.ENDPOINTS))

# %% tags=["hide-input"]
paper = si.paper.ENDPOINTS
if len(heads):
    quantiles = heads.groupby("model").closure.quantile([0.5, 0.9, 1]).unstack()
    quantiles.columns = ["median", "q90", "max"]
    words = {"median": "median", "q90": "90% quantile", "max": "highest head"}
    lines = []
    for column, name in words.items():
        low, high = paper[column].min(), paper[column].max()
        inside = quantiles[column].between(low, high)
        lines.append(
            f"- {name}: {low:.3f} to {high:.3f} in the paper; here {quantiles[column].min():.3f} to "
            f"{quantiles[column].max():.3f}, and {inside.sum()} of {len(inside)} models are in that "
            "range."
        )
    display(Markdown("\n".join(lines)))

# %% [markdown]
# ### Depth

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure over relative depth, a panel a model: marks are heads (diamonds: strong), the line is the layer median, in grey those of the other models."}, "image": {"alt": "Panels of closure against relative depth, one a model, with the layer median as a line"}}
if len(heads):
    display(si.plots.depth_by_model(heads))

# %% [markdown]
# ### The sign of $\alpha$
#
# In the paper's largest models most strong heads have a negative $\alpha$. Where there are no strong heads,
# or few, the top decile by closure is another place to look; the interval says what so few heads can tell.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Share of heads with a negative alpha: strong heads, the tenth of highest closure, all heads. Bars are 95% intervals, the band is the strong heads of the paper's models of 13B and more."}, "image": {"alt": "Share of heads with negative alpha by model and group of heads with intervals, and the paper's band"}}
if len(heads):
    shares = sign_shares(heads)
    display(si.plots.sign_by_model(shares, si.paper.SURVEY["negative_alpha"]))

# %% [markdown]
# ### Capacity and attainment

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Capacity (left) and attainment (right) of the searched heads: a blind sample of each model, its strong heads, and as many ordinary heads of the same layers. Bars are medians, bands the medians of the paper's models."}, "image": {"alt": "Two panels of single heads by model: capacity and attainment of the blind sample, the matched and the strong heads"}}
searched = combined(results_dir, "attainment", ("sample", "capacity", "attainment"))
if len(searched):
    display(si.plots.attainment_by_model(searched, si.paper.CAPACITY))

# %% tags=["hide-input"]
if len(searched):
    medians = (
        searched.groupby(["model", "sample"])[["closure", "capacity", "attainment"]]
        .median()
        .unstack("sample")
    )
    names = {"hash": "blind", "matched": "matched", "strong": "strong"}
    display(
        medians.rename(columns=names, level=1)
        .rename_axis(index=None, columns=[None, None])
        .style.format(precision=3, na_rep="–")
        .set_caption("Medians over heads; a dash where a model has no strong heads")
    )

# %% [markdown]
# ### Value sharing

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Gain inheritance of the pairs with a strong right head: F (left) and the inherited ratio (right), with the control. Below the line the medians of the paper's seven models."}, "image": {"alt": "Two panels by model: F of sibling pairs, and rho of sibling pairs and of the control, with the paper's medians"}}
pairs = combined(results_dir, "sharing_pairs", ("right_closure", "F", "rho", "control_rho"))
pairs = pairs[pairs.right_closure >= STRONG]
if len(pairs):
    display(si.plots.sharing_by_model(pairs, si.paper.SHARING))

# %% tags=["hide-input"]
without = [model for model in models if model not in set(pairs.model)]
if without:
    display(
        Markdown(
            f"Without a strong head that has siblings, and so without a row: {', '.join(without)}."
        )
    )

# %% [markdown]
# ## In the paper, and here
#
# What follows from the verdicts, put together by the same rule for whatever models were run: a claim of the
# paper is **general** here if it holds wherever it can be decided, and **mixed** if it holds for some models only.

# %% tags=["hide-input"]
of_paper = decided[decided.origin == "paper"]
if len(of_paper):
    share = of_paper.groupby("claim", sort=False).verdict.apply(lambda v: (v == HOLDS).mean())
    n = of_paper.groupby("claim", sort=False).model.nunique()
    undecided = [c.id for c in CLAIMS if c.origin == "paper" and c.id not in share.index]
    short = board.drop_duplicates("claim").set_index("claim").short
    kinds = {
        "general": share.index[share == 1],
        "mixed": share.index[(share > 0) & (share < 1)],
        "nowhere": share.index[share == 0],
    }
    lines = [
        f"Of the {len(share)} claims of the paper that could be decided, {len(kinds['general'])} are "
        f"general over the models here ({(n[kinds['general']] >= 2).sum()} of them over two models or "
        f"more), {len(kinds['mixed'])} are mixed, and {len(kinds['nowhere'])} hold nowhere."
    ]
    for kind in ("mixed", "nowhere"):
        if len(kinds[kind]):
            lines.append(f"- {kind}: " + "; ".join(short[kinds[kind]]))
    if undecided:
        lines.append("- not decided for any model: " + "; ".join(short[undecided]))
    display(Markdown("\n\n".join(lines[:1]) + "\n\n" + "\n".join(lines[1:])))

# %% [markdown]
# ## Exercises
#
# 1. Add a model: `scaled-idempotence run path/to/your/model`. Which claims change from *mixed* to something
#    else?
#
# 2. A model has 72 heads, and 68 of them beat their scrambles. Is that fewer than the paper's share? Decide with
#    `scipy.stats.binomtest` before you look at the table.
#
# :::{dropdown} Solution
# `binomtest(68, 72, 0.9864, alternative="less").pvalue` is about 0.02: with 72 heads that is not rare
# enough to say so at 1%. The test takes heads as independent, which flatters its precision.
# :::
#
# 3. Which of the criteria would you read more strictly? Each is a function in
#    `scaled_idempotence.claims`; `si.scoreboard` gives the table to check yours against.
