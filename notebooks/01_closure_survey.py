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
# ---

# %% [markdown]
# # Closure survey
#
# An attention head reads the residual stream through $V$, mixes over positions, and writes back
# through $O$. Leave the mixing out and what is left is a linear map of the residual stream into
# itself, the head's **OV operator** $T = O V^{\mathsf T}$. This chapter asks one question of every
# head of a model:
#
# > *If the head read its own output, would it do anything new?*
#
# A head for which the answer is no has $T^2 = \alpha T$: applying it twice is applying it once, up
# to a scale. Such an operator is a **scaled idempotent**: $T/\alpha$ is a projection, in general
# an oblique one.

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
model = "smollm2-135m"  # bundled name, org/name on the hub, model folder, or .gguf file
norm = "raw"  # or "folded": with the gains of the norms around attention
revision = ""  # branch, tag or commit on the hub; empty for the only or newest one
results_dir = "results"  # tables go to <results_dir>/<model>/
threshold = 0.9  # closure from which a head counts as strong

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.survey import summary, sweep

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## The score
#
# Fit $T^2$ by a multiple of $T$ in the Frobenius norm. The best multiple is
#
# $$\alpha = \frac{\langle T^2, T\rangle}{\|T\|^2},$$
#
# and the share of $T^2$ that it explains is the **closure score**
#
# $$P(T) = \frac{\langle T^2, T\rangle^2}{\|T^2\|^2\,\|T\|^2} \in [0, 1],$$
#
# equations (5) and (6) of the paper. $1 - P$ is the normalised squared residual of the fit, so
# $P = 1$ exactly where $T^2 = \alpha T$ with $\alpha \neq 0$. How strongly a second pass acts is the
# **return gain** $g_T = \|T^2\| / \|T\| = |\alpha| / \sqrt P$.
#
# $T$ is a $d \times d$ matrix of rank $r$, and none of this needs it. With the **return core**
# $M = V^{\mathsf T} O$ and the Grams $A = O^{\mathsf T}O$, $B = V^{\mathsf T}V$, one has
# $T^2 = O M V^{\mathsf T}$ and $\langle O X V^{\mathsf T}, O Y V^{\mathsf T}\rangle =
# \operatorname{tr}(X^{\mathsf T} A Y B)$ (17), so
#
# $$P(T) = \frac{\langle M, I\rangle_{A,B}^2}{\|M\|_{A,B}^2\,\|I\|_{A,B}^2}$$
#
# out of $r \times r$ matrices only.
#
# ## The control
#
# A high score could come from the shapes of $O$ and $V$ by themselves. So each $O_h$ is also paired
# with a **wrong $V$**: the next value head of the same layer, cyclically. The factors keep their
# spectra and their subspaces; only who is paired with whom changes.

# %% tags=["hide-input"]
heads = si.survey(weights, results_dir=results_dir)
figures = summary(heads, threshold)

lines = [
    f"Of **{figures.heads:.0f} heads**, **{figures.strong:.0f}** ({figures.strong_share:.1%}) have "
    f"$P \\geq {threshold:g}$. The median closure is {figures['median']:.4f}, the highest "
    f"{figures['max']:.4f}."
]
if figures.undefined:
    reasons = heads[heads.closure.isna()].reason.value_counts()
    lines.append(
        "No score is defined for "
        + "; ".join(f"{count} heads ({reason})" for reason, count in reasons.items())
        + ". They are left out of every figure."
    )
if weights.n_value_heads == 1:
    lines.append(
        "All query heads of a layer share one value head (MQA), so **no wrong $V$ exists** in a "
        "layer and the control does not apply to this model."
    )
else:
    lines.append(
        f"With a wrong $V$ the median falls to {figures.wrong_v_median:.2g}, and the highest of all "
        f"is {figures.wrong_v_max:.3f}."
    )
display(Markdown("\n\n".join(lines)))

# %% [markdown]
# ## Where the heads are

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure of every head. Strong heads are framed."}, "image": {"alt": "Heat map of closure, one cell a head, layers from left to right, strong heads framed"}}
si.plots.closure_map(heads, threshold)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure over depth: one mark a head, strong heads as diamonds, the line is the layer median."}, "image": {"alt": "Scatter of closure by layer with the layer median as a line"}}
si.plots.closure_by_layer(heads, threshold)

# %% [markdown]
# ## Against the wrong $V$

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Left: distribution of closure for trained pairs and for the wrong-V control, logarithmic axis. Right: the same heads sorted."}, "image": {"alt": "Two panels: cumulative distribution of closure, and heads sorted by closure, trained pairs against wrong-V pairs"}}
si.plots.closure_distribution(heads, threshold)

# %% [markdown]
# The cyclic control tries one wrong partner. All of them can be tried at once: pair each $O_h$ with
# every $V_g$ of its layer and look up the rank of the trained one. If the trained value factor were
# exchangeable with the others, its rank among $G$ would be uniform, so rank$/G$ is an exact
# permutation p-value for one head. A layer's whole assignment is tested by permuting the value
# heads over the groups.

# %% tags=["hide-input"]
if weights.n_value_heads == 1:
    text = "With one value head there is nothing to rank: the test does not apply to this model."
else:
    G = weights.n_value_heads
    first = (heads.trained_rank == 1).mean()
    per_layer = heads.groupby("layer").layer_permutation_p.first()
    smallest = per_layer.min()
    text = (
        f"The trained $V$ ranks first of {G} for **{first:.1%}** of the heads ({1 / G:.1%} would by "
        f"chance). {(per_layer == smallest).sum()} of {len(per_layer)} layers have the p-value "
        f"{smallest:.2g} in the test of their whole assignment"
        + (f", the smallest that {G} value heads allow." if G <= 7 else ".")
    )
display(Markdown(text))

# %% [markdown]
# ## How the count depends on the threshold
#
# 0.9 is a convention. What matters is whether the picture changes with it.

# %% tags=["hide-input"]
display(
    sweep(heads)
    .rename(
        columns={
            "share": "share of heads",
            "negative_alpha": "of them with negative alpha",
            "wrong_v": "wrong-V pairings",
        }
    )
    .style.format(
        {
            "threshold": "{:.3f}",
            "share of heads": "{:.1%}",
            "of them with negative alpha": "{:.0%}",
            "wrong-V pairings": "{:.0f}",
        },
        na_rep="–",
    )
    .hide(axis="index")
)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Share of heads at or above each threshold. The diamond is the share over the six models of the paper's survey together."}, "image": {"alt": "Line plot of the share of heads against the closure threshold, with the wrong-V control and the paper's share"}}
paper = si.paper.ENDPOINTS
si.plots.threshold_sweep(heads, reference=paper.strong.sum() / paper.heads.sum())

# %% [markdown]
# ## Sign and size
#
# $\alpha$ may be negative: the head then writes the opposite of what it reads back. Its sign is
# related to the **copying score** of Elhage et al., $\sum\lambda/\sum|\lambda|$ over the
# eigenvalues of $T$: an exact scaled idempotent has one nonzero eigenvalue, $\alpha$, so its copying
# score is the sign of $\alpha$. High closure is not the same as large gain, so the return gain is
# shown against the model's median. A rank-one $T$ closes trivially, so the effective rank of the
# strong heads is reported.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure against the return gain relative to the model's median (left) and against the copying score (right), coloured by the sign of alpha."}, "image": {"alt": "Two scatter plots of closure: against relative return gain and against the copying score, coloured by sign of alpha"}}
si.plots.gain_and_sign(heads, threshold)

# %% tags=["hide-input"]
strong = heads[heads.closure >= threshold].sort_values("closure", ascending=False)
median_gain = heads.return_gain.median()
if len(strong):
    agree = (np.sign(strong.alpha) == np.sign(strong.copying_score)).mean()
    text = (
        f"{figures.negative_alpha:.0%} of the strong heads have a negative $\\alpha$. The sign of "
        f"$\\alpha$ is that of the copying score for {agree:.0%} of them. Their median return gain "
        f"is {strong.return_gain.median():.3g}, against {median_gain:.3g} over all heads, and their "
        f"effective rank runs from {strong.effective_rank.min():.1f} to "
        f"{strong.effective_rank.max():.1f}, of $r = {weights.d_head}$: "
        + (
            "none closes because its rank is one."
            if strong.effective_rank.min() >= 2
            else "those near 1 close trivially."
        )
    )
else:
    text = (
        f"**No head of this model reaches $P \\geq {threshold:g}$**; the highest is "
        f"{figures['max']:.4f}. The sweep above says how many there are at lower thresholds. The "
        f"median return gain over all heads is {median_gain:.3g}."
    )
display(Markdown(text))
columns = ["layer", "head", "closure", "alpha", "return_gain", "copying_score", "effective_rank"]
shown = strong if len(strong) else heads.nlargest(5, "closure")
display(
    shown[columns]
    .head(20)
    .rename(columns=lambda name: name.replace("_", " "))
    .style.format(precision=3)
    .hide(axis="index")
    .set_caption("Strong heads" if len(strong) else "The five heads of highest closure")
)

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
here = pd.DataFrame(
    {
        "topology": weights.topology,
        "heads": int(figures.heads),
        "median": figures["median"],
        "q90": figures.q90,
        "max": figures["max"],
        "strong": (heads.closure >= 0.9).sum(),  # the paper's threshold, whatever ours
        "wrong_v_median": figures.wrong_v_median,
    },
    index=pd.Index([f"{weights.label} (here)"], name="model"),
)
both = pd.concat([paper, here])
both.insert(6, "strong share", both.strong / both.heads)
display(
    both.reset_index()
    .rename(columns={"wrong_v_median": "wrong-V median"})
    .style.format(
        {
            "median": "{:.4f}",
            "q90": "{:.4f}",
            "max": "{:.4f}",
            "strong share": "{:.1%}",
            "wrong-V median": "{:.2e}",
        },
        na_rep="none",
    )
    .hide(axis="index")
    .set_caption(f"Closure survey: the paper's six models ({si.paper.ARXIV}) and this one")
)

low, high = si.paper.SURVEY["negative_alpha"]
limit = si.paper.SURVEY["wrong_v_below"]
medians = si.paper.SURVEY["return_gain_medians"]
verdicts = [
    "- *A sparse set of heads closes.* "
    + (
        f"Here {figures.strong:.0f} of {figures.heads:.0f} heads do ({figures.strong_share:.1%}); in "
        f"the paper {(paper.strong / paper.heads).min():.1%} to "
        f"{(paper.strong / paper.heads).max():.1%}."
        if len(strong)
        else f"Here none reaches {threshold:g}: **this does not hold for this model.**"
    ),
    f"- *No wrong-V pairing reaches {limit}.* "
    + (
        "Does not apply: there is one value head."
        if weights.n_value_heads == 1
        else f"Here the highest is {figures.wrong_v_max:.3f}: "
        + ("this holds." if figures.wrong_v_max < limit else "**this does not hold.**")
    ),
    f"- *Most strong heads have a negative $\\alpha$* ({low:.0%} to {high:.0%} in the models of 13B "
    "and more). "
    + (
        f"Here {figures.negative_alpha:.0%} of {len(strong)} do."
        if len(strong)
        else "Does not apply: there are no strong heads."
    ),
    f"- *Return gains differ between models*, with medians over strong heads from {medians[0]:g} to "
    f"{medians[1]:g}. "
    + (
        f"Here the median is {strong.return_gain.median():.3g}."
        if len(strong)
        else "Does not apply: there are no strong heads."
    ),
]
display(Markdown("\n".join(verdicts)))

# %% [markdown]
# ## Exercises
#
# 1. Take two vectors $u, v$ with $v^{\mathsf T} u \neq 0$. Show that $T = u v^{\mathsf T}$ has
#    $P(T) = 1$, and find $\alpha$. What if $v^{\mathsf T} u = 0$?
#
# :::{dropdown} Solution
# $T^2 = u (v^{\mathsf T} u) v^{\mathsf T} = (v^{\mathsf T}u)\, T$, so $\alpha = v^{\mathsf T}u$ and
# the fit is exact. If $v^{\mathsf T}u = 0$ then $T^2 = 0$ and the score is not defined: the table
# would hold NaN and the reason. This is why effective rank is reported beside closure.
# :::
#
# 2. Let $M$ be a projection of rank below $r$, so that $M^2 = M$. Is $P(T) = 1$?
#
# :::{dropdown} Solution
# Not in general. $T^2 = O M V^{\mathsf T}$ must be a multiple of $O V^{\mathsf T}$, so for factors
# of full column rank $M$ has to be a multiple of the identity (16). With orthonormal $O$ and $V$,
# $P = \operatorname{rank}(M)^2 / (\|M\|^2\, r) $, which is well below 1 for a projection of low rank.
# :::
#
# 3. Run this page for another model: `scaled-idempotence run gemma-3-270m`, or change `model` in
#    the parameters cell on Colab. Does the sign of $\alpha$ still follow the copying score?
#
# :::{dropdown} Solution
# The chapter's text names the share of strong heads whose $\alpha$ has the sign of the copying score, or
# shows the heads of highest closure where none is strong: compare the two columns. Near $T^2 = \alpha T$
# the nonzero eigenvalues gather around $\alpha$, so the signs agree for heads that nearly close; for others
# they need not.
# :::
