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
# # Scrambling
#
# Closure could come from the spectrum of a head, from the angles between the subspaces that it reads
# and writes, or from how the transport core is turned between them. The first two can be held fixed
# exactly while the third is destroyed:
#
# > *Keep every singular value, both subspaces and every principal angle. Turn the core at random.
# > What is left of closure?*

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
permutation_draws = 8  # signed-permutation scrambles a head
haar_draws = 2  # Haar scrambles a head
null_draws = 400  # Haar scrambles of each of three heads, to check the closed-form null

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display
from scipy import stats

import scaled_idempotence as si
from scaled_idempotence.experiments.orientation import orientation_summary

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## The intervention
#
# In principal coordinates a head is $T = Q_O K Q_V^{\mathsf T}$ with support
# $D = Q_O^{\mathsf T} Q_V$. Replace the core by
#
# $$K' = P_L\, K\, P_R^{\mathsf T} \qquad (22)$$
#
# with orthogonal $P_L$ and $P_R$. $K'$ has the singular values of $K$; $Q_O$, $Q_V$ and $D$ are not
# touched. Only the **orientation** of the core between the two bases is another one. Two kinds of
# $P_L, P_R$ are drawn: independent **signed permutations**, which keep the entries of the core and
# only move them, and independent **Haar-random** rotations.
#
# A head's draws are seeded by model, layer, head, kind and draw, so they are the same in whatever order
# the heads are visited. Heads that share a value factor go on sharing it: $Q_O K' Q_V^{\mathsf T}$
# is $O' V^{\mathsf T}$ with the *original* $V$ for a suitable $O'$.

# %% tags=["hide-input"]
table = si.orientation(
    weights,
    permutation_draws=permutation_draws,
    haar_draws=haar_draws,
    results_dir=results_dir,
)
figures = orientation_summary(table)
layer = weights[weights.n_layers // 2]
values = layer.V[layer.value_head]
K, cosines, Q_O, Q_V = si.principal_coordinates(layer.O, values)
turned = si.signed_permutation_scramble(K, draws=1)[:, 0]
again = si.principal_coordinates(si.refactor(turned, Q_O, Q_V, values), values)
audit = pd.DataFrame(
    {
        "held fixed": [
            "singular values (relative to the largest)",
            "Frobenius norm (relative)",
            f"principal angles, of O' and the original V (layer {layer.index})",
        ],
        "largest deviation": [
            table.singular_value_error.max(),
            table.norm_error.max(),
            float((again.cosines - cosines).abs().max()),
        ],
    }
)
display(audit.style.format({"largest deviation": "{:.1e}"}).hide(axis="index"))
display(
    Markdown(
        f"Rank audit: {(table['rank'] == weights.d_head).sum()} of {len(table)} heads have full rank "
        f"$r = {weights.d_head}$; the smallest singular value is {table.singular_ratio.min():.2g} to "
        f"{table.singular_ratio.max():.2g} of the largest; the effective rank has a median of "
        f"{table.effective_rank.median():.1f}."
    )
)

# %% [markdown]
# ## What is left

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Left: closure of every head as trained against the median over its scrambles; on the dotted line nothing would change. Right: layer medians."}, "image": {"alt": "Two panels: trained against scrambled closure for every head on logarithmic axes, and layer medians of both"}}
si.plots.trained_against_scrambled(table)
# %% tags=["hide-input"]
display(
    Markdown(
        f"The median closure falls from **{figures.trained:.3f}** to **{figures.permutation:.1e}** under "
        f"signed permutations and to **{figures.haar:.1e}** under Haar rotations. The trained orientation is "
        f"above the median of its scrambles in {figures.permutation_wins:.1%} of the heads "
        f"({figures.haar_wins:.1%} for Haar), and by layer medians in {figures.permutation_layers:.0f} "
        f"({figures.haar_layers:.0f}) of {figures.layers:.0f} layers. The highest closure of any "
        f"scramble of any head is {figures.highest:.3f}."
    )
)

# %% [markdown]
# ## A null in closed form
#
# Is sampling needed? Let $K = U \operatorname{diag}(s) W^{\mathsf T}$ with Haar-random $U$ and $W$. The
# response $K D K$ then points in a random direction as seen from $K$, and the cosine between
# the two is close to a centred normal variable. Its variance does not depend on the angles, to
# first order:
#
# $$P_0 = \frac{\sum_i s_i^6}{\bigl(\sum_i s_i^2\bigr)^3}, \qquad
# P \approx P_0\,\chi^2_1 .$$
#
# This is not in the paper. It gives each head a null, a $z$ and a $p$ value for nothing, and it tells
# orientation from low rank: for a flat spectrum $P_0 = 1/r^2$, for rank one it is 1. Below it is checked
# against many scrambles of three heads: the one of the highest closure, one of the median, and the one
# with the most concentrated spectrum, for which the approximation is worst.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure of many Haar scrambles over the closed-form null, against the chi-square distribution with one degree of freedom. On the dotted line the two agree."}, "image": {"alt": "Quantile-quantile plot of scrambled closure over its null against chi-square for three heads"}}
ranked = table.dropna(subset="closure").sort_values("closure")
chosen = {
    "highest": ranked.iloc[-1],
    "median": ranked.iloc[len(ranked) // 2],
    "lowest effective rank": ranked.loc[ranked.effective_rank.idxmin()],
}
ratios = {}
for name, row in chosen.items():
    layer = weights[int(row.layer)]
    head = int(row["head"])
    own = si.principal_coordinates(layer.O[head], layer.V[layer.value_head[head]])
    draws = si.haar_scramble(own.K, draws=null_draws, seeds=[f"null:{layer.index}:{head}"])
    label = f"{name}: layer {layer.index}, head {head}"
    ratios[label] = si.core_closure(draws, own.cosines).numpy() / row.null
si.plots.null_distribution(ratios)
# %% tags=["hide-input"]
means = ", ".join(f"{ratio.mean():.2f} ({label})" for label, ratio in ratios.items())
medians = ", ".join(f"{np.median(ratio):.2f}" for ratio in ratios.values())
display(
    Markdown(
        f"Means of $P/P_0$ over {null_draws} scrambles: {means}; a chi-square variable has 1. "
        f"Medians: {medians}; it has {stats.chi2.median(df=1):.3f}."
    )
)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Every head against its own closed-form null. Above the dashed line lie 1% of random orientations."}, "image": {"alt": "Scatter of closure against the closed-form null on logarithmic axes with the null line and its one percent line"}}
si.plots.closure_against_null(table, threshold)
# %% tags=["hide-input"]
beyond = (table.null_p < 0.01).mean()
display(
    Markdown(
        f"**{beyond:.1%}** of the heads lie above what 1% of random orientations reach; the median $z$ is "
        f"{table.null_z.median():.1f}. The null itself runs from {table.null.min():.1e} to "
        f"{table.null.max():.1e} (a flat spectrum would have {1 / weights.d_head**2:.1e}): "
        + (
            "no head closes because its spectrum is short."
            if table.null.max() < 0.1
            else "where it is near 1 a head closes because its spectrum is short."
        )
    )
)

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
paper = si.paper.ORIENTATION
both = pd.DataFrame(
    {
        f"paper, {paper['models']} models": {
            "heads": f"{paper['heads']:,}",
            "layers": f"{paper['layers']}",
            "median closure, trained": f"{paper['trained']:.3f}",
            "median, signed permutations": f"{paper['permutation']:.2e}",
            "median, Haar rotations": f"{paper['haar']:.2e}",
            "trained higher (permutations)": f"{paper['permutation_wins']:.2%}",
            "trained higher (Haar)": f"{paper['haar_wins']:.2%}",
            "layers with a higher median": "all",
            "highest scramble": f"below {paper['scrambled_below']}",
        },
        f"{weights.label}, here": {
            "heads": f"{figures.heads:.0f}",
            "layers": f"{figures.layers:.0f}",
            "median closure, trained": f"{figures.trained:.3f}",
            "median, signed permutations": f"{figures.permutation:.2e}",
            "median, Haar rotations": f"{figures.haar:.2e}",
            "trained higher (permutations)": f"{figures.permutation_wins:.2%}",
            "trained higher (Haar)": f"{figures.haar_wins:.2%}",
            "layers with a higher median": (
                f"{figures.permutation_layers:.0f} and {figures.haar_layers:.0f} of {figures.layers:.0f}"
            ),
            "highest scramble": f"{figures.highest:.3f}",
        },
    }
)
display(both.style)
verdicts = [
    (
        "Trained orientation beats scrambles in all layers",
        figures.permutation_layers == figures.layers,
    ),
    (f"No scramble reaches {paper['scrambled_below']}", figures.highest < paper["scrambled_below"]),
]
lines = [
    f"- *{claim}*: " + ("holds." if holds else "**does not hold.**") for claim, holds in verdicts
]
if weights.n_value_heads == 1:
    lines.append(
        "- The wrong-$V$ control of the other chapters **does not exist** for this model: its layers have "
        "one value head. Scrambles need no second value head, so this chapter applies in full."
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# ## Exercises
#
# 1. Why does a signed permutation of a core keep its singular values? And why not the closure?
#
# :::{dropdown} Solution
# Signed permutation matrices are orthogonal, and orthogonal factors from both sides change no singular
# value. Closure compares $K' D K'$ with $K'$, and in
# $P_L K P_R^{\mathsf T} D P_L K P_R^{\mathsf T}$ the two inner factors do not cancel unless
# $P_R = P_L$ and both commute with $D$.
# :::
#
# 2. Find $P_0$ for a spectrum with $k$ equal singular values and zeros.
#
# :::{dropdown} Solution
# $P_0 = k s^6 / (k s^2)^3 = 1/k^2$. A head of rank two has $P_0 = 1/4$: closure means little there.
# :::
#
# 3. Turn both sides by the *same* random rotation, $K' = P K P^{\mathsf T}$. Predict what happens to
#    $P_I$ and to $P_D$, then try it with `si.core_closure` and `si.latent_closure`.
#
# :::{dropdown} Solution
# $K'^2 = P K^2 P^{\mathsf T}$, so $P_I$ does not change. $P_D$ changes only as far as the angles
# differ from one another.
# :::
