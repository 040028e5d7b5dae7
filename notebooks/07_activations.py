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
# # Natural activations
#
# Everything so far was read off the weights. Closure is a statement about all inputs at once, each direction
# of the residual stream counted alike. A model never sees such inputs. So let it read:
#
# > *When a head with $T^2 \approx \alpha T$ writes an output $y$ on real text, is $T y$ really
# > $\alpha y$?*

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
text = ""  # text file or id of a data set; empty for prose that ships with Python
n_segments = 4  # segments of the text
length = 256  # tokens of each
max_gigabytes = 4.0  # stored weights up to which the model is run

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.activations import group_medians

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## What is measured
#
# Head $h$ writes $y = O_h z$, where $z$ is its slice of what enters the output projection: values mixed by
# attention. A hook keeps $z$ while the model reads, and the rest needs no width:
#
# $$T y = O M z, \qquad \langle y, Ty\rangle = z^{\mathsf T} A M z,$$
#
# $$\|y\|^2 = z^{\mathsf T} A z, \qquad \|Ty\|^2 = (Mz)^{\mathsf T} A\, (Mz),$$
#
# with $A = O^{\mathsf T}O$ and the return core $M = V^{\mathsf T} O$. For each token the score is the squared
# cosine of $y$ and $Ty$; over all tokens the gain is $g_y = \sqrt{\sum\|Ty\|^2 / \sum\|y\|^2}$. The control
# holds $y$ and $O$ and reads them back through the *next* value head.
#
# The layer norms, attention and other heads are those of the running model; what is asked is only
# what one head would do to its own output.

# %% tags=["hide-input"]
table = si.activations(
    weights,
    text or None,
    n_segments=n_segments,
    length=length,
    threshold=threshold,
    max_bytes=max_gigabytes * 1e9,
    results_dir=results_dir,
)
measured, strong = table.attrs["measured"], table[table.strong]
groups = group_medians(table)
if measured:
    message = (
        f"transformers ran {weights.name} on {table.attrs['n_segments']} segments of "
        f"{table.attrs['length']} tokens of {table.attrs['text']}."
    )
else:
    message = (
        f"**The model was not run here**: {table.attrs['reason']}. What follows is what the factors alone "
        "show, for Gaussian inputs; no statement on text is made."
    )
display(Markdown(message))

# %% [markdown]
# ## Weights promise, text keeps?
#
# For inputs without a preferred direction the squared cosine, aggregated over tokens, *is* closure: with
# $\mathrm E\, z z^{\mathsf T} = V^{\mathsf T}V$ the sums become the traces of (17). On text there are preferred directions, and
# heads could live in a part of their space where the weights' average does not hold.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Squared cosine of a head's output y with T y. Left: median over tokens (bars: middle half) against closure. Right: groups of heads, and the same outputs read through the wrong V; bars are medians."}, "image": {"alt": "Scatter of the squared cosine on activations against closure, and groups of heads with the wrong-V control"}}
si.plots.activation_cosines(table, threshold)

# %% tags=["hide-input"]
columns = {
    "heads": "heads",
    "closure": "closure",
    "isotropic_cos2_median": "Gaussian",
    "cos2_median": "on text",
    "cos2_aggregated": "aggregated",
    "wrong_v_cos2_median": "wrong V",
    "rms_gain": "RMS gain",
}
shown = groups.loc[groups.heads > 0, list(columns)[: None if measured else 3]]
display(
    shown.rename(columns=columns)
    .style.format(dict.fromkeys(columns.values(), "{:.3f}") | {"heads": "{:.0f}"}, na_rep="–")
    .set_caption("Squared cosine of y and T y, medians over heads")
)
display(
    Markdown(
        "*high* and *low* are the tenth of all heads with the highest and with the lowest closure, *matched low* "
        "the lowest heads in the layers of the high ones, as many. *Gaussian* and *on text* are medians over "
        "inputs of single tokens, *aggregated* takes all tokens as one vector."
    )
)
rank = table[["closure", "cos2_median"]].corr(method="spearman").iloc[0, 1]
if measured:
    lines = []
    if len(strong):
        lines.append(
            f"The {len(strong)} strong heads have a median squared cosine of "
            f"**{groups.cos2_median.strong:.3f}** on text; their median closure is "
            f"{groups.closure.strong:.3f}."
        )
    else:
        lines.append(f"**No head of this model reaches $P \\geq {threshold:g}$.**")
    lines.append(
        f"The top decile has **{groups.cos2_median.high:.3f}**, the bottom decile "
        f"{groups.cos2_median.low:.3f}, the lowest heads of the same layers "
        f"{groups.cos2_median['matched low']:.3f}."
    )
    if weights.n_value_heads == 1:
        lines.append("There is one value head a layer, so no wrong $V$.")
    else:
        lines.append(
            f"Through the wrong $V$ the top decile's outputs come back at "
            f"{groups.wrong_v_cos2_median.high:.3f}."
        )
    lines.append(
        f"Over all heads the rank correlation of closure with the median on text is {rank:.3f}. "
        f"For Gaussian inputs the top decile would have {groups.isotropic_cos2_median.high:.3f}: text is "
        + (
            "a little harder on them than that."
            if groups.cos2_median.high < groups.isotropic_cos2_median.high
            else "no harder on them than that."
        )
    )
    display(Markdown(" ".join(lines)))

# %% [markdown]
# ## The gain
#
# Closure says that $Ty$ is parallel to $y$, the return gain says how long it is. If the weights'
# gain $g_T$ is right for natural outputs as well, the heads lie on the diagonal.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "RMS gain on natural outputs against the return gain of the weights, a mark a head."}, "image": {"alt": "Scatter on logarithmic axes of the gain on text against the return gain of the weights"}}
if measured:
    display(si.plots.activation_gain(table))

# %% tags=["hide-input"]
if measured:
    ratio = table.rms_gain / table.return_gain
    display(
        Markdown(
            f"The ratio $g_y / g_T$ has median {ratio.median():.2f} over all heads, and lies between "
            f"{ratio.quantile(0.05):.2f} and {ratio.quantile(0.95):.2f} for nine heads of ten."
        )
    )

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
low, high = si.paper.ACTIVATIONS["high_decile"]
ours = f"{groups.cos2_median.high:.3f}" if measured else "not run"
display(
    pd.DataFrame(
        [("median squared cosine, top decile of closure", f"{low:.3f} to {high:.3f}", ours)],
        columns=["", "paper", f"{weights.label}, here"],
    ).style.hide(axis="index")
)
if measured:
    value = groups.cos2_median.high
    place = "inside" if low <= value <= high else "below" if value < low else "above"
    display(
        Markdown(
            f"This model lies **{place}** the range of the paper's. Other text and other models were read "
            "there. What the check supports is that closure holds on the outputs that heads "
            "really write. It does *not* show that the model makes use of it: that is the next chapter's "
            "question."
        )
    )

# %% [markdown]
# ## Exercises
#
# 1. Why can the aggregated squared cosine be lower than that of every single token?
#
# :::{dropdown} Solution
# Each token may have $Ty = \alpha y$ with an $\alpha$ of its own. With two tokens of equal length and
# $\alpha = \pm 1$ each squared cosine is 1, and the sum of inner products is 0.
# :::
#
# 2. Show that for $T^2 = \alpha T$ the squared cosine is 1 on *every* input, and that the converse holds.
#
# :::{dropdown} Solution
# $y = O z$ with $z = V^{\mathsf T}x$ is $y = Tx$, so $Ty = T^2 x = \alpha y$. Conversely, if $T$ maps every vector of its
# range to a multiple of itself, every vector of the range is an eigenvector, so all eigenvalues are one $\alpha$
# and $T$ acts on its range as $\alpha I$: $T(Tx) = \alpha\,Tx$.
# :::
#
# 3. Attention mixes values of several tokens before $O$. Why does that not matter for an exact head?
#
# :::{dropdown} Solution
# A mixture $z = \sum_j a_j V^{\mathsf T}x_j = V^{\mathsf T}\sum_j a_j x_j$ is again $V^{\mathsf T}$ of something (biases aside),
# and the statement is about all inputs.
# :::
