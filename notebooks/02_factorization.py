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
# # Factorization
#
# A head's operator $T = O V^{\mathsf T}$ reads from one $r$-dimensional subspace of the residual
# stream and writes to another. When it is applied twice, what was written is read again, and how
# much of it arrives depends on how the two subspaces lie to each other. This chapter takes the two
# apart:
#
# > *What part of closure is the head's own small matrix, what part is the angles, and do the two
# > belong together?*

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
from scaled_idempotence.experiments.factorial import layer_interactions
from scaled_idempotence.statistics import auroc

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## An exact factorization
#
# Take orthonormal bases of the two subspaces by QR, $O = Q_O R_O$ and $V = Q_V R_V$, and turn them
# so that they face each other: with the singular value decomposition
# $Q_O^{\mathsf T} Q_V = A_\theta D B_\theta^{\mathsf T}$ (7), the bases $Q_O A_\theta$ and
# $Q_V B_\theta$ meet pairwise at the **principal angles** $\theta_i$, and
# $D = \operatorname{diag}(\cos\theta_i)$. Between these bases the head is its **transport core**
#
# $$K = A_\theta^{\mathsf T} R_O R_V^{\mathsf T} B_\theta, \qquad
# T \;\widehat{=}\; K, \qquad T^2 \;\widehat{=}\; K D K \qquad (8, 9)$$
#
# and since the bases are orthonormal, closure is a statement about two $r \times r$ matrices:
#
# $$P(T) = P_D(K) = \frac{\langle K D K, K\rangle^2}{\|K D K\|^2\,\|K\|^2}. \qquad (10)$$
#
# The core carries the spectrum (its singular values are those of $T$) and an orientation; the
# **support** $D$ carries the angles and nothing else.

# %% tags=["hide-input"]
support = si.support(weights, results_dir=results_dir)
strong = support.closure >= threshold
display(
    Markdown(
        f"Computed both ways, from the factors and from $K$ and $D$, the two sides of (10) differ by "
        f"at most **{support.identity_error.max():.1e}** over the {len(support)} heads of this model."
    )
)

# %% [markdown]
# Here is the head of highest closure, and one with the median closure. If $T^2 = \alpha T$, the
# response $K D K$ on the right must look like the core on the left, up to its scale and sign.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Transport core, support and response of the head of highest closure (top) and of a head of median closure (bottom). Where the response repeats the core, the head closes."}, "image": {"alt": "Six matrices: core, diagonal support and response of a head of high closure and of an ordinary head"}}
ranked = support.dropna(subset="closure").sort_values("closure")
chosen = (ranked.iloc[-1], ranked.iloc[len(ranked) // 2])
cores = {}
for row in chosen:
    layer = weights[int(row.layer)]
    head = int(row["head"])
    coordinates = si.principal_coordinates(layer.O[head], layer.V[layer.value_head[head]])
    label = f"layer {layer.index}, head {head}, $P$ = {row.closure:.2f}"
    cores[label] = (coordinates.K.numpy(), coordinates.cosines.numpy())
si.plots.core_anatomy(cores)
# %% [markdown]
# ## The angles
#
# How much do the read and the write subspace overlap? The **overlap** $\|D\|^2/r$ (11) is the mean
# squared cosine; two random subspaces have $r/d$. The **isotropy**
# $I_D = r\,\bar c^{\,2}/\sum c_i^2$ (12) is 1 where all angles are equal.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Cosines of the principal angles between read and write subspace, a line a head."}, "image": {"alt": "Line plot of sorted cosines of principal angles for every head, strong heads highlighted, with the level of random subspaces"}}
angles = si.cores(weights, results_dir=results_dir)
defined = angles.cosines.map(len) > 0
si.plots.principal_angles(
    np.stack(angles.cosines[defined]),
    support.closure[defined].to_numpy(),
    support.random_overlap.iloc[0],
    threshold,
)
# %% tags=["hide-input"]
ordinary = support[~strong]
text = (
    f"The median overlap is {support.overlap.median():.3f}, "
    f"{support.overlap.median() / support.random_overlap.iloc[0]:.2f} times that of random subspaces. "
    f"The median isotropy is {support.isotropy.median():.3f}."
)
if strong.any():
    text += (
        f" For the strong heads these are {support[strong].overlap.median():.3f} and "
        f"{support[strong].isotropy.median():.3f}, for the others {ordinary.overlap.median():.3f} and "
        f"{ordinary.isotropy.median():.3f}."
    )
display(Markdown(text))

# %% [markdown]
# ## The core without its angles
#
# Forget the angles: put $K^2$ in place of $K D K$. The score of this **latent core**,
#
# $$P_I(K) = \frac{\langle K^2, K\rangle^2}{\|K^2\|^2\,\|K\|^2}, \qquad (13)$$
#
# is also what closure would be if all angles were equal with the same overlap,
# $D_{\mathrm{iso}} = (\|D\|/\sqrt r)\, I$, because closure does not change when $D$ is scaled. If closure
# came from the angles, $P_I$ would not predict it.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure against the closure of the latent core. On the diagonal the angles play no part."}, "image": {"alt": "Scatter of closure against latent closure coloured by isotropy, with the diagonal"}}
si.plots.latent_against_closure(support, threshold)
# %% tags=["hide-input"]
rank_correlation = support[["closure", "latent_closure", "isotropy"]].corr("spearman").closure
lines = [
    f"Over all heads the rank correlation of closure with $P_I$ is "
    f"**{rank_correlation.latent_closure:.3f}**, with isotropy {rank_correlation.isotropy:.3f}."
]
if strong.any():
    stay = (support[strong].latent_closure >= threshold).sum()
    scores = {name: auroc(support[name], strong) for name in ("latent_closure", "isotropy")}
    lines.append(
        f"With equal angles {stay} of the {strong.sum()} strong heads would stay strong. Told by $P_I$ "
        f"alone, strong and ordinary heads are separated with an area under the ROC curve of "
        f"{scores['latent_closure']:.3f}; by isotropy alone, {scores['isotropy']:.3f}."
    )
else:
    lines.append(
        f"There is no head with $P \\geq {threshold:g}$ here, so the question which strong heads stay "
        "strong with equal angles does not apply to this model."
    )
display(Markdown("\n\n".join(lines)))

# %% [markdown]
# ## What uneven angles do
#
# Split the support into its mean and the rest, $D = cI + E$ with $c = \operatorname{tr}(D)/r$. The
# response is $K D K = c K^2 + K E K$, and relative to $c\,\|K^2\|$ the second term has three parts
# (14): $a$ **radial**, along $K^2$, which only changes the length; $b$ **rotation**, in the plane of
# $K^2$ and $K$, towards closure or away from it; and $w$ **leakage**, out of that plane, which can
# only cost. With $s = \sqrt{P_I}$,
#
# $$P_D(K) = \frac{\bigl(s(1+a) + \sqrt{1-s^2}\, b\bigr)^2}{(1+a)^2 + b^2 + \|w\|^2}. \qquad (15)$$

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The effect of uneven angles on each head's response: radial and rotation as coordinates, leakage as colour."}, "image": {"alt": "Scatter of radial against rotation for every head, coloured by leakage, strong heads as diamonds"}}
si.plots.response_plane(support, threshold)
# %% tags=["hide-input"]
helped = (support.closure > support.latent_closure).mean()
display(
    Markdown(
        f"Uneven angles raise closure above that of the latent core for {helped:.0%} of the heads. The "
        f"median rotation is {support.rotation.median():+.3f}, the median leakage "
        f"{support.leakage.median():.3f}"
        + (
            f"; for the strong heads {support[strong].rotation.median():+.3f} and "
            f"{support[strong].leakage.median():.3f}."
            if strong.any()
            else "."
        )
    )
)

# %% [markdown]
# ## Do core and support belong together?
#
# Inside a layer, give every core every support, and ask whether a head's own pair does better than
# its parts explain. For head $h$ that is the interaction of a two-way table,
#
# $$I_{DK}(h) = P_{D_h}(K_h) - \overline{P_{D_h}(K_{h'})} - \overline{P_{D_{h''}}(K_h)} +
# \overline{P_{D_{h''}}(K_{h'})}, \qquad (21)$$
#
# with means over all donors of the layer. Donors move by whole value groups, with the query slot held
# fixed. The control repeats everything after giving each $O_h$ the next value head, which
# makes new cores and new supports that were never trained together.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Interaction of core and support, layer means, on an axis that is linear near zero and logarithmic beyond. Crosses are the wrong-V control."}, "image": {"alt": "Layer means of the factorial interaction against layer, trained pairs and wrong-V control"}}
table = si.factorial(weights, results_dir=results_dir)
layers = layer_interactions(table)
if weights.n_value_heads > 1:
    display(si.plots.interaction_by_layer(layers))

# %% tags=["hide-input"]
if weights.n_value_heads == 1:
    text = (
        "**This does not apply here**: with one value head a layer (MQA) there is no other group that "
        "could be a donor, and no wrong $V$ for the control. No figure is drawn."
    )
else:
    positive = (layers.interaction > 0).sum()
    text = (
        f"The interaction is positive in **{positive} of {len(layers)} layers**, with a median of "
        f"{layers.interaction.median():.2g}. The control's median is "
        f"{layers.control_interaction.median():.1g}, and its largest size in any layer is "
        f"{layers.control_interaction.abs().max():.1g}."
    )
display(Markdown(text))

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
iso, fact = si.paper.ISOCLINIC, si.paper.FACTORIAL
rows = [
    (
        "strong heads that stay strong with equal angles",
        f"{iso['stay_strong']:,} of {iso['strong']:,}",
        f"{stay} of {strong.sum()}" if strong.any() else "no strong heads",
    ),
    (
        "AUROC of latent closure",
        f"{iso['auroc_latent']:.3f}",
        f"{scores['latent_closure']:.3f}" if strong.any() else "no strong heads",
    ),
    (
        "AUROC of isotropy",
        f"{iso['auroc_isotropy']:.3f}",
        f"{scores['isotropy']:.3f}" if strong.any() else "no strong heads",
    ),
    (
        "layers with a positive interaction",
        f"{fact['positive_layers'][0]:.1%} to {fact['positive_layers'][1]:.0%}",
        f"{(layers.interaction > 0).mean():.1%}" if weights.n_value_heads > 1 else "one value head",
    ),
]
display(
    pd.DataFrame(rows, columns=["", "paper, nine models", f"{weights.label}, here"]).style.hide(
        axis="index"
    )
)

# %% [markdown]
# ## Exercises
#
# 1. Show that $P_D(K)$ does not change when $D$ is multiplied by a positive number, and conclude that
#    $D_{\mathrm{iso}}$ gives $P_I(K)$.
#
# :::{dropdown} Solution
# $K (tD) K = t\, K D K$, and numerator and denominator of (10) both scale with $t^2$. $D_{\mathrm{iso}}$ is
# a multiple of $I$, and $P_{I}(K)$ is the score with $D = I$.
# :::
#
# 2. When is $P_I(K) = 1$ although $K$ is no multiple of a projection onto its range along its kernel?
#
# :::{dropdown} Solution
# Never: $P_I(K) = 1$ says $K^2 = \beta K$ with $\beta \neq 0$, so $K/\beta$ is idempotent, and an
# idempotent is the projection onto its range along its kernel. If $K$ is invertible, $K = \beta I$.
# :::
#
# 3. The interaction (21) is zero for any table of the form $f(K) + g(D)$. Why does that make it a test
#    of *pairing* and not of good cores or good supports?
#
# :::{dropdown} Solution
# The two means subtract what the core does on average over supports, and what the support does on average
# over cores. A head with a good core and a good support, but nothing that ties the two, has none left.
# :::
