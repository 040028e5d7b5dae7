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
# # Head explorer
#
# The other chapters speak of many heads at a time. This page asks of one:
#
# > *Which head is it, how nearly does it repeat itself, and what do its core and its angles look
# > like?*
#
# It shows the result tables of every model that was run here, and computes nothing new. A model that
# is added with `scaled-idempotence run` appears by itself when the book is built again.

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
results_dir = "results"  # tables come from <results_dir>/<model>/
example = "smollm2-135m"  # model to compute where there are no tables at all, as on Colab

# %% tags=["hide-input"]
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.publish.explorer import explorable

if not explorable(results_dir):
    weights = si.open_model(example)
    for experiment in (si.survey, si.support, si.orientation, si.attainment, si.cores):
        experiment(weights, results_dir=results_dir)
explorer = si.head_explorer(results_dir)

# %% tags=["hide-input"]
display(explorer)

# %% tags=["hide-input"]
lines = []
for label, (kept, heads) in explorer.matrices.items():
    text = f"- `{label}`: {heads:,} heads"
    if kept < heads:
        text += f"; angles and matrices are kept for the {kept:,} of highest closure"
    lines.append(text + ".")
if explorer.left_out:
    lines.append(
        f"- Left out, so that the page stays small: {', '.join(map('`{}`'.format, explorer.left_out))}."
    )
display(
    Markdown(
        f"{len(explorer.models)} {'model is' if len(explorer.models) == 1 else 'models are'} in this "
        f"page, which takes {len(explorer.html) / 1e6:.1f} MB and nothing from elsewhere. Matrices show "
        f"at most the {explorer.block} best aligned principal directions and are rounded to 8 bits; the "
        "table beside them is not.\n\n" + "\n".join(lines)
    )
)

# %% [markdown]
# ## How to read it
#
# The **map** has a cell for every head, coloured by closure $P$. A click chooses a head,
# and so do the fields above the map. With the keyboard, focus the map and use the arrow keys; Home goes
# to the head of highest closure, Page Down and Page Up go through the heads by rank.
#
# The **table** and the **comparison** put the closure beside what it could have been: the closed-form
# null, which has the head's own spectrum and no orientation; the medians of the two kinds of
# scrambles; the wrong-$V$ control; and the best orientation that a search found. The search is run for a
# sample of the heads and for all strong ones, so for most heads there is no capacity. It is a lower
# bound.
#
# The **angles** are those between the subspace that the head reads from and the one that it writes to;
# their cosines are the diagonal of the support $D$. The **matrices** are the transport core $K$, the
# support, and the response $K D K$, in the principal bases and from the best aligned direction on. If
# $T^2 = \alpha T$, then $K D K = \alpha K$: the third picture repeats the first, with blue and red
# exchanged where $\alpha$ is negative.
#
# ## In the paper, and here
#
# The paper has no such page. It reports medians over heads and layers; what is shown here are the same
# quantities before any median is taken, so that a claim about heads in general can be held against
# single ones.
#
# ## Exercises
#
# 1. Find a strong head, or the strongest that there is, whose core is blue on the diagonal. What is the
#    sign of its $\alpha$, and why?
#
# :::{dropdown} Solution
# Negative. If $K D K = \alpha K$ with $D$ positive, then on the diagonal of a nearly diagonal core
# $K_{ii}^2 D_{ii} \approx \alpha K_{ii}$, so $K_{ii}$ has the sign of $\alpha$. The response,
# which squares it, is red: it is $\alpha$ times the core.
# :::
#
# 2. Find a head of low closure with a large overlap of its subspaces. What does that say about angles as
#    an explanation of closure?
#
# :::{dropdown} Solution
# That they are not sufficient: the subspaces meet, and the second application does read what the first one
# wrote, but the core turns it into something else. The scrambles of the chapter on orientation make such
# heads out of strong ones.
# :::
#
# 3. For a head with a capacity, compare attainment with closure over capacity. When do they differ?
#
# :::{dropdown} Solution
# Attainment is $E = (P - R)/(\mathrm{Cap} - R)$ with the median scramble $R$. It differs from
# $P/\mathrm{Cap}$ only as far as $R$ is not small, so for heads of low rank, which close by chance.
# :::
