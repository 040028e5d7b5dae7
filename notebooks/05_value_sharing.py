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
# # Value sharing
#
# In most recent models several query heads read through one value factor. Siblings
# $T_i = O_i V^{\mathsf T}$ and $T_j = O_j V^{\mathsf T}$ forget the same things: their kernels are equal.
# What happens when one of them closes?
#
# > *If $T_j^2 \approx \alpha_j T_j$, what does $T_j$ do behind its siblings?*

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
import pandas as pd
import sympy
import torch
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.sharing import product_tables, sharing_sweep
from scaled_idempotence.paper import THRESHOLDS

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## The law, and why
#
# Write $C_V = V (V^{\mathsf T} V)^{-1}$, so that $V^{\mathsf T} C_V = I$. Every operator of the form
#
# $$X_a = (a\, C_V + N)\, V^{\mathsf T}, \qquad V^{\mathsf T} N = 0, \qquad (18)$$
#
# has $V^{\mathsf T}(a\,C_V + N) = a I$. So for two of them, with any $N$ each,
#
# $$X_a\, Y_b = (a\,C_V + N_X)\,\underbrace{V^{\mathsf T}(b\,C_V + N_Y)}_{b\, I}\, V^{\mathsf T} = b\, X_a:
# \qquad (19)$$
#
# **acting from the right, an element is a number.** These operators form an algebra $\mathcal A_V$, and
# $T = O V^{\mathsf T}$ with factors of full column rank has $T^2 = a T$ exactly when it is one of them.
# At $a = 1$ its elements are oblique projections along one kernel onto different ranges, and
# $P_i P_j = P_i$: a **left-zero band**.
#
# ### By hand
#
# Take $d = 3$, $r = 2$. The columns of $V$ leave one direction free, $n$ with $V^{\mathsf T} n = 0$, and
# $N = n m^{\mathsf T}$ for any $m$. Everything below is exact arithmetic.

# %%
V = sympy.Matrix([[1, 0], [0, 1], [1, 1]])
n = sympy.Matrix([1, 1, -1])
C_V = V * (V.T * V).inv()
X = (2 * C_V + n * sympy.Matrix([[1, 0]])) * V.T  # a = 2
Y = (3 * C_V + n * sympy.Matrix([[0, -1]])) * V.T  # b = 3
for name, matrix in (
    ("X_2", X),
    ("Y_3", Y),
    ("X_2\\,Y_3 = 3\\,X_2", X * Y),
    ("Y_3\\,X_2 = 2\\,Y_3", Y * X),
):
    display(Markdown(f"$${name} = {sympy.latex(matrix)}$$"))
assert X * Y == 3 * X
assert Y * X == 2 * Y
assert X * X == 2 * X

# %% [markdown]
# ### Both ways, on this model's own value factor
#
# *An element multiplies as stated.* Make one of the trained $V$ of a middle layer, with a random oblique
# part, and look at its closure. *A head that closes exactly is an element.* Replace a trained $O$ by the
# nearest one for which $V^{\mathsf T} O$ is scalar; then ask for membership.

# %% tags=["hide-input"]
layer = weights[weights.n_layers // 2]
value = layer.V[0]
noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
element = si.algebra_element(-2.0, si.free_part(noise, value), value)
scores = si.closure_scores(element, value)
trained = layer.O[0]
exact = si.nearest_idempotent(trained, value)
display(
    Markdown(
        f"A made element with $a = -2$: $1 - P$ = {abs(1 - scores.closure):.1e}, fitted "
        f"$\\alpha$ = {scores.alpha:.12f}.\n\n"
        f"Layer {layer.index}, head 0: as trained $P$ = {si.closure(trained, value):.4f}, in the "
        f"algebra: {'yes' if si.in_algebra(trained, value) else 'no'}; the nearest element has "
        f"$1 - P$ = {abs(1 - si.closure(exact, value)):.1e}, in the algebra: "
        f"{'yes' if si.in_algebra(exact, value) else 'no'}."
    )
)

# %% [markdown]
# ## Multiplication tables of real groups
#
# A trained head is never exactly in the algebra. Does the law survive? Take the layer with the head of the
# highest closure that has siblings, and multiply out all its groups. In each table, row $i$ and
# column $j$ belong to the product $T_i T_j$; the diagonal is closure. The law says: a *column*
# of a strong right head is bright on the left. On the right, where the product is compared with its
# right factor, there is no such law.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Squared cosine of every product of siblings with its left factor (left) and with its right factor (right), for each value group of the layer. Stars mark strong heads."}, "image": {"alt": "Tables of squared cosines of products of sibling heads, against the left and against the right factor"}}
result = si.sharing(weights, threshold=min(threshold, *THRESHOLDS), results_dir=results_dir)
heads = result.anchors
strong = heads[heads.closure >= threshold]
pairs = result.pairs[result.pairs.right_closure >= threshold]
siblings = result.siblings[
    (result.siblings.left_closure >= threshold) & (result.siblings.right_closure >= threshold)
]
if weights.topology != "MHA":
    best = heads.loc[heads.closure.idxmax()]
    products = product_tables(weights[int(best.layer)])
    marked = set(strong[strong.layer == best.layer]["head"])
    display(si.plots.multiplication_tables(products, marked))

# %% tags=["hide-input"]
text = {
    "MHA": "**This model has no siblings** (MHA): each value factor is read by one head, so there are "
    "no products to compare and no tables. Anchors and retrieval, below, apply.",
    "MQA": "All heads of a layer share one value factor (MQA): each table is a whole layer, and there "
    "is **no next value group** for a control.",
    "GQA": "",
}[weights.topology]
if weights.topology != "MHA":
    text += f" The tables are those of layer {best.layer:.0f}."
    if not len(strong):
        text += (
            f" **No head of this model reaches $P \\geq {threshold:g}$**, so there are no strong right "
            "heads; the sweep at the end of the page says what holds at lower thresholds."
        )
display(Markdown(text))

# %% [markdown]
# ## Gain inheritance
#
# For every strong right head $j$ and each sibling $i \neq j$, compare the product with what the law
# says, *with $\alpha_j$ taken from $T_j$ alone*:
#
# $$F_{ij} = 1 - \frac{\|T_i T_j - \alpha_j T_i\|^2}{\|T_i T_j\|^2}, \qquad
# \beta_{ij} = \frac{\langle T_i T_j, T_i\rangle}{\|T_i\|^2}, \qquad
# \rho_{ij} = \frac{\beta_{ij}}{\alpha_j}. \qquad (25)$$
#
# $\rho = 1$ means that the gain is inherited whole. The control keeps $T_j$ and its $\alpha_j$, and takes
# as left head the one in the same query slot of the *next* value group, which does not share the kernel.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Gain inheritance, a mark a pair, bars are medians. Ticks are the paper's models."}, "image": {"alt": "Two panels: inherited gain ratio of sibling pairs and of the control, and squared cosine of the product with its left factor"}}
if len(pairs):
    display(si.plots.gain_inheritance(pairs, si.paper.SHARING))

# %% tags=["hide-input"]
if len(pairs):
    ours = pd.DataFrame(
        {
            "right_heads": len(pairs[["layer", "right_head"]].drop_duplicates()),
            "pairs": len(pairs),
            "F": pairs.F.median(),
            "rho": pairs.rho.median(),
            "control_rho": pairs.control_rho.median(),
        },
        index=[f"{weights.label} (here)"],
    )
    both = pd.concat([si.paper.SHARING, ours]).rename_axis("model").reset_index()
    display(
        both.rename(columns=lambda name: name.replace("_", " "))
        .style.format(precision=3, na_rep="none")
        .hide(axis="index")
        .set_caption("Gain inheritance: medians over pairs, the paper's seven models and this one")
    )
    text = (
        f"The median squared cosine of $T_iT_j$ with its left factor is "
        f"**{pairs.right_product_closure.median():.3f}**, with its right factor "
        f"{pairs.left_product_closure.median():.3f}. "
        + (
            f"In the control the median $\\rho$ falls to {pairs.control_rho.median():.3f}."
            if pairs.control_rho.notna().any()
            else "There is no control: the layer has one value group."
        )
    )
else:
    text = (
        "There are no pairs to score here: "
        + (
            "the model has no siblings."
            if weights.topology == "MHA"
            else f"no head reaches $P \\geq {threshold:g}$."
        )
        + " The paper's figures, for reference, are in `si.paper.SHARING`."
    )
display(Markdown(text))

# %% [markdown]
# ## The bound
#
# The law degrades gracefully. How far $T_i T_j$ is from $\alpha_j T_i$ is bounded by how far $T_j$
# is from closing,
#
# $$\|T_i T_j - \alpha_j T_i\|^2 \le \gamma_{ij}\, \|T_j^2 - \alpha_j T_j\|^2, \qquad (20)$$
#
# where $\gamma_{ij}$ is the largest generalised eigenvalue of the Grams $(A_i, A_j)$: how much more of a
# value vector $O_i$ can write than $O_j$.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Observed residual of every pair against its bound; nothing may lie in the shaded half."}, "image": {"alt": "Scatter of the observed residual against the bound on logarithmic axes, all points below the diagonal"}}
if len(pairs):
    display(si.plots.bound_against_residual(pairs))

# %% tags=["hide-input"]
if len(pairs):
    ratio = pairs.residual / pairs.bound
    text = (
        f"The bound holds for {(pairs.residual <= pairs.bound).sum()} of {len(pairs)} pairs. The observed "
        f"residual is {ratio.median():.0%} of it in the median ({ratio.min():.0%} to {ratio.max():.0%}); "
        f"the median $\\gamma$ is {pairs.gamma.median():.2f}."
    )
else:
    text = "No pairs, so nothing to bound at this threshold."
display(Markdown(text))

# %% [markdown]
# ## Same kernel, different ranges
#
# Are strong siblings duplicates of one another? Normalise them, $P_i = T_i/\alpha_i$. They should be
# projections along one kernel, $P_i P_j = P_i$, onto ranges of their own.

# %% tags=["hide-input"]
if len(siblings):
    columns = {
        "layer": "layer",
        "left_head": "i",
        "right_head": "j",
        "band_residual": "|PiPj-Pi|²/|Pi|²",
        "band_residual_reverse": "|PjPi-Pj|²/|Pj|²",
        "squared_cosine": "squared cosine",
        "kernel_angle_max": "largest kernel angle",
        "range_angle_median": "median range angle",
    }
    display(
        siblings[list(columns)]
        .rename(columns=columns)
        .style.format(precision=3)
        .format("{:.0e}", subset=["largest kernel angle"])
        .hide(axis="index")
        .set_caption("Pairs of strong siblings; angles in radians")
    )
    text = (
        f"Squared cosines run from {siblings.squared_cosine.min():.3f} to "
        f"{siblings.squared_cosine.max():.3f}: siblings are "
        + ("not duplicates" if siblings.squared_cosine.max() < 0.95 else "in part near-duplicates")
        + ", although their kernels are the same to rounding."
    )
else:
    text = f"This model has no pair of siblings that are both strong at $P \\geq {threshold:g}$."
display(Markdown(text))

# %% [markdown]
# ## Anchor and retrieval
#
# Take the scale and the oblique part of a head apart: $T = a P_V + N V^{\mathsf T} + \text{rest}$, with the
# **anchor** $P_V = V (V^{\mathsf T}V)^{-1}V^{\mathsf T}$, the orthogonal projection onto the read subspace.
# The three parts are orthogonal; their shares of $\|T\|^2$ add up to 1, and the rest is what keeps the head
# out of the algebra. If the anchor is visible in $T$, it tells which $V$ the head belongs to: rank all
# value factors of the layer by the squared cosine of $T$ with their anchors.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Left: shares of every head in its anchor and in the free oblique part; on the dotted line nothing is left outside of the algebra. Right: squared cosine with the trained anchor against the best other one of the layer."}, "image": {"alt": "Two scatter plots: anchor share against oblique share, and trained anchor against the best other anchor"}}
si.plots.anchors(heads, threshold)

# %% tags=["hide-input"]
lines = []
ordinary = heads[heads.closure < threshold]
if len(strong):
    lines.append(
        f"Medians over the strong heads: anchor {strong.anchor_cosine.median():.3f}, oblique part "
        f"{strong.oblique_energy.median():.3f}, outside of the algebra "
        f"{strong.remainder_energy.median():.3f}. Over the others: {ordinary.anchor_cosine.median():.3f}, "
        f"{ordinary.oblique_energy.median():.3f}, {ordinary.remainder_energy.median():.3f}."
    )
else:
    lines.append(
        f"There are no strong heads. Medians over all heads: anchor {heads.anchor_cosine.median():.3f}, "
        f"oblique part {heads.oblique_energy.median():.3f}, outside of the algebra "
        f"{heads.remainder_energy.median():.3f}."
    )
if weights.n_value_heads == 1:
    lines.append("Retrieval does not apply: the layer has one value factor.")
else:
    first = f"{(ordinary.retrieval_rank == 1).sum()} of {len(ordinary)} ordinary heads"
    if len(strong):
        first = (
            f"**{(strong.retrieval_rank == 1).sum()} of {len(strong)}** strong heads and {first}"
        )
    lines.append(
        f"The trained $V$ ranks first among the layer's {weights.n_value_heads} for {first}. An operator "
        "that reads through $V$ overlaps with its anchor almost by its making, so the ranks of ordinary "
        "heads are what those of strong heads must be read against."
    )
display(Markdown("\n\n".join(lines)))

# %% [markdown]
# ## At other thresholds

# %% tags=["hide-input"]
sweep = sharing_sweep(result)
columns = ["threshold", "right_heads", "pairs", "F", "rho", "control_rho", "left_product_closure"]
if weights.topology == "MHA":
    columns = ["threshold", "strong", "anchor_cosine", "oblique_energy"]
shown = sweep[[*columns, "retrieved_first"]]
display(
    shown.rename(columns=lambda name: name.replace("_", " "))
    .style.format(precision=3, na_rep="–")
    .hide(axis="index")
)

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
reported = si.paper.SHARING
rows = []
for name, title in (
    ("F", "median $F$"),
    ("rho", "median $\\rho$"),
    ("control_rho", "median $\\rho$ of the control"),
):
    low, high = reported[name].min(), reported[name].max()
    here = pairs[name].median() if len(pairs) else float("nan")
    if pd.isna(here):
        compared = "does not apply"
    else:
        compared = "below" if here < low else "above" if here > high else "within"
    rows.append((title, f"{low:.3f} to {high:.3f}", f"{here:.3f}", compared))
lines = [
    f"| | paper, {len(reported)} models | {weights.label}, here | against the paper's range |",
    "|---|---|---|---|",
    *("| " + " | ".join(row).replace("nan", "–") + " |" for row in rows),
]
if len(pairs):
    n_right = len(pairs[["layer", "right_head"]].drop_duplicates())
    lines.append(
        f"\nHere a median is over {len(pairs)} pairs with {n_right} right heads, in the paper over "
        f"{reported.pairs.min()} to {reported.pairs.max()} pairs of a model."
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# ## Exercises
#
# 1. Why does the *left* product have no law? Compare $T_i T_j$ with $T_j$ for two elements of
#    $\mathcal A_V$.
#
# :::{dropdown} Solution
# $X_a Y_b = b X_a$, which is a multiple of $Y_b$ only where $a\,C_V + N_X$ is a multiple of
# $b\,C_V + N_Y$, that is where the two are the same element up to scale.
# :::
#
# 2. The proposition asks for factors of full column rank. Find an $O$ without it for which $T^2 = T$ and
#    $V^{\mathsf T} O$ is not scalar.
#
# :::{dropdown} Solution
# Let $V$ have orthonormal columns $v_1, v_2$ and $O = (v_1, 0)$. Then $T = v_1 v_1^{\mathsf T}$ is a
# projection, and $V^{\mathsf T}O = \operatorname{diag}(1, 0)$. Such a $T$ belongs to the algebra of its own,
# smaller row space.
# :::
#
# 3. Show that $P_i P_j = P_i$ and $P_j P_i = P_j$ make $\lambda P_i + (1-\lambda) P_j$ idempotent
#    for every $\lambda$.
#
# :::{dropdown} Solution
# Multiply out: $\lambda^2 P_i + \lambda(1-\lambda)(P_i + P_j) + (1-\lambda)^2 P_j = \lambda P_i +
# (1-\lambda) P_j$. Strong siblings span a whole line of projections.
# :::
