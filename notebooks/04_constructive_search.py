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
# # Constructive search
#
# Random orientations of a core have next to no closure. That says that training did something; it does not
# say what was possible. So turn the question round:
#
# > *For a head's own singular values and its own angles, how close to closure could any orientation
# > come, and how much of that did training attain?*

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
n_starts = 2  # searches a head, beside the one from the trained orientation
max_steps = 100  # steps allowed to each search

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.attainment import (
    attainment_gaps,
    best_orientation,
    path_closure,
)

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## Capacity
#
# Keep the singular values $\sigma$ of the core and the support $D$, and let the orientation go anywhere:
#
# $$\operatorname{Cap}(\sigma, D) = \max_{U_L, U_R\ \text{orthogonal}}
# P_D\bigl(U_L \operatorname{diag}(\sigma)\, U_R^{\mathsf T}\bigr). \qquad (23)$$
#
# With $G = U_R^{\mathsf T} D U_L$ the score is a quotient of sums over one $r \times r$ matrix,
#
# $$P = \frac{\bigl(\sum_i \sigma_i^3 G_{ii}\bigr)^2}
# {\sum_{ij} \sigma_i^2 \sigma_j^2 G_{ij}^2\;\sum_i \sigma_i^2},$$
#
# so the search is cheap. It returns the orientation itself, which anyone can put back into (10). What it
# reaches is a **lower bound** of the capacity, never called the optimum.
#
# The share that a trained head takes of what is possible is its **attainment**,
#
# $$E = \frac{P - R}{\operatorname{Cap} - R}, \qquad (24)$$
#
# with $R$ the median closure of its scrambles: 0 is what a random turn gives, 1 is the best one found. $E$
# is not clipped.
#
# Three samples are searched: two heads a layer, chosen by a hash and **blind** to closure; all **strong**
# heads; and as many **matched** ordinary heads of the same layers.

# %% tags=["hide-input"]
table = si.attainment(
    weights,
    threshold=threshold,
    n_starts=n_starts,
    max_steps=max_steps,
    results_dir=results_dir,
)
blind = table[table["sample"] == "hash"]
strong = table[table["sample"] == "strong"]
matched = table[table["sample"] == "matched"]
layer_medians = blind.groupby("layer").capacity.median()
display(
    Markdown(
        f"{len(table.drop_duplicates(['layer', 'head']))} heads were searched from "
        f"{table.n_starts.iloc[0]} starts each, {table.n_steps.median():.0f} steps in the median. In the "
        f"blind sample of {len(blind)} heads the median capacity is **at least "
        f"{blind.capacity.median():.3f}**, while the median closure is {blind.closure.median():.3f}; "
        f"the median attainment is **{blind.attainment.median():.2f}**."
    )
)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The blind sample. Left: closure of each head joined to the best found for its own spectrum and angles. Right: the share attained."}, "image": {"alt": "Two panels over layers: closure, capacity and scrambles of two heads a layer, and their attainment with the layer median"}}
si.plots.capacity_by_layer(table)

# %% tags=["hide-input"]
able = blind[blind.capacity >= 0.9]
display(
    Markdown(
        f"{len(able)} of {len(blind)} heads *could* have a closure of at least 0.9 with another "
        f"orientation. Of these, **{(able.closure < 0.9).mean():.0%}** stay below it. The lowest layer "
        f"median of capacity is {layer_medians.min():.3f}."
        if len(able)
        else f"For none of the {len(blind)} heads an orientation with a closure of 0.9 was found."
    )
)

# %% [markdown]
# What sets a strong head apart: what its spectrum and angles allow, or that its orientation makes use of it?
#
# ## Strong against ordinary

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure, capacity and attainment of strong heads and of ordinary heads of the same layers."}, "image": {"alt": "Box plots with single heads for closure, capacity and attainment, strong against layer-matched ordinary heads"}}
if len(strong):
    display(si.plots.strong_against_matched(table))

# %% tags=["hide-input"]
if len(strong):
    gaps = attainment_gaps(table)
    display(
        gaps.rename(
            columns={
                "strong": "strong, median",
                "matched": "matched, median",
                "low": "95% from",
                "high": "to",
            }
        )
        .style.format(precision=3, na_rep="–")
        .set_caption(
            f"{len(strong)} strong heads and {len(matched)} matched; bootstrap over layers"
        )
    )
    share = gaps.gap.capacity / gaps.gap.closure
    text = (
        f"The gap in closure is {gaps.gap.closure:.3f}; the gap in capacity is {gaps.gap.capacity:.3f}, "
        f"{share:.0%} of it. The gap in attainment is {gaps.gap.attainment:.3f}."
    )
else:
    text = (
        f"**No head of this model reaches $P \\geq {threshold:g}$**, so there is nothing to match and no "
        "gap to report. The blind sample above applies in full."
    )
display(Markdown(text))

# %% [markdown]
# ## The landscape between
#
# Walk from the trained orientation to the best one found (or to its negative, which closes as well, where
# that is nearer), along geodesics of the orthogonal group, and watch closure. The heads are the one of the highest closure, and the blind heads with the highest and the
# lowest attainment.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure along the path from the trained orientation to the best one found."}, "image": {"alt": "Lines of closure against position on the path from the trained to the best orientation, for three heads"}}
chosen = {
    "highest closure": table.loc[table.closure.idxmax()],
    "highest attainment, blind": blind.loc[blind.attainment.idxmax()],
    "lowest attainment, blind": blind.loc[blind.attainment.idxmin()],
}
paths = {}
for name, row in chosen.items():
    layer, head = weights[int(row.layer)], int(row["head"])
    s, cosines, trained, best = best_orientation(
        layer, head, weights.name, n_starts=n_starts, max_steps=max_steps
    )
    label = f"{name}: layer {layer.index}, head {head}"
    paths[label] = path_closure(s, cosines, trained, best)
si.plots.landscape(paths)

# %% tags=["hide-input"]
dips = [
    f"{label.split(':')[0]}, {closure[0]:.2f} to {closure[-1]:.2f}, never below {closure.min():.2f}"
    for label, (_, closure) in paths.items()
]
display(Markdown("Closure from end to end: " + "; ".join(dips) + "."))

# %% [markdown]
# ## By hand
#
# No search is needed to see why capacity is high. If $U_L = U_R$ is a permutation, $G$ is a diagonal
# matrix with the cosines in some order $c_{\pi(i)}$, and
#
# $$P = \frac{\bigl(\sum_i \sigma_i^3 c_{\pi(i)}\bigr)^2}{\sum_i \sigma_i^4 c_{\pi(i)}^2 \sum_i \sigma_i^2},$$
#
# which by Cauchy and Schwarz is 1 exactly where $c_{\pi(i)} \propto 1/\sigma_i$. So pair the largest
# singular value with the smallest cosine, and so on: the **sorted pairing**. It is spoiled by cosines that
# are far too small, which then meet the largest singular values. The **shifted pairing** first gives the $k$
# smallest cosines away to the $k$ smallest singular values, where they do no harm, sorts the rest, and
# takes the best $k$.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "What the two pairings reach without any search, against the best orientation found."}, "image": {"alt": "Scatter of the closure of the sorted and of the shifted pairing against the best closure found"}}
si.plots.simple_constructions(table)

# %% tags=["hide-input"]
heads = table.drop_duplicates(["layer", "head"])
won = heads.best_start.value_counts()
display(
    Markdown(
        f"Medians: sorted pairing {heads.sorted_pairing.median():.3f}, shifted pairing "
        f"{heads.shifted_pairing.median():.3f}, best found {heads.capacity.median():.3f}. The best search set "
        "out from "
        + ", ".join(f"the {name} start for {count} heads" for name, count in won.items())
        + "."
    )
)

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
paper = si.paper.CAPACITY
rows = [
    (
        "median capacity, ordinary heads",
        f"{paper['ordinary'][0]:.3f} to {paper['ordinary'][1]:.3f}",
        f"{blind.capacity[blind.closure < threshold].median():.3f} (blind sample)",
    ),
    (
        "median capacity, strong heads",
        f"{paper['strong'][0]:.3f} to {paper['strong'][1]:.3f}",
        f"{strong.capacity.median():.3f}" if len(strong) else "no strong heads",
    ),
    (
        "lowest layer median of capacity",
        f"above {paper['layer_medians_above']}",
        f"{layer_medians.min():.3f}",
    ),
]
display(
    pd.DataFrame(rows, columns=["", "paper", f"{weights.label}, here"]).style.hide(axis="index")
)
holds = layer_medians.min() > paper["layer_medians_above"]
display(
    Markdown(
        f"*All layer medians of capacity are above {paper['layer_medians_above']}*: "
        + ("holds." if holds else "**does not hold.**")
        + " The search here is another one than the paper's; both give lower bounds, and a higher one is not a "
        "contradiction."
    )
)

# %% [markdown]
# ## Exercises
#
# 1. Show that capacity is 1 where all cosines are equal and all singular values are equal.
#
# :::{dropdown} Solution
# $K = \sigma I$ has $K D K = \sigma^2 c I$, a multiple of $K$.
# :::
#
# 2. Why does flipping the sign of one column of $U_L$ *and* of $U_R$ not change the head?
#
# :::{dropdown} Solution
# $K = \sum_i \sigma_i u_i v_i^{\mathsf T}$, and $(-u_i)(-v_i)^{\mathsf T} = u_i v_i^{\mathsf T}$. The path between two
# orientations has to choose these signs, or it would take a detour.
# :::
#
# 3. Redo the sorted pairing of one head with `si.principal_coordinates` and `si.sorted_pairing`, and
#    check its closure with `si.core_closure`.
#
# :::{dropdown} Solution
# With `weights`, `layer` and `head` chosen as you like:
#
# ```python
# factors = weights[layer]
# O, V = factors.O[head], factors.V[factors.value_head[head]]
# cosines = si.principal_coordinates(O, V).cosines
# s = si.singular_values(O, V)
# U_L, U_R = si.sorted_pairing(s, cosines)
# si.core_closure((U_L * s) @ U_R.T, cosines)
# ```
#
# `si.closure_of_orientation(s, cosines, U_L, U_R)` gives the same number without forming the core.
# :::
