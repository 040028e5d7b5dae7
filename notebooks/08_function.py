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
#     takes: long
# ---

# %% [markdown]
# # Function
#
# Closure is real in the weights and holds on text. Does the model *need* it? The paper leaves that open.
# Here heads are changed inside the running model, and its prediction is asked:
#
# > *Does the loss depend on how nearly a head is a scaled idempotent?*

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
n_segments = 8  # segments of the text
length = 256  # tokens of each
draws = 3  # random changes for each head and segment
single_heads = 2  # heads of each group that are also changed one at a time; 0 for all
single_segments = 2  # segments for one head at a time, and for the curves
max_gigabytes = 4.0  # stored weights up to which the model is run

# %% tags=["hide-input"]
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.function import contrasts

si.plots.set_theme()
weights = si.open_model(model, revision=revision or None, norm=norm)
display(Markdown(weights.description))

# %% [markdown]
# ## Four ways to change a head
#
# Keep $V$, and let $a$ be the scale for which $\|C_V (M - aI) V^{\mathsf T}\|$ is smallest.
#
# - **To the exact member**: $O' = O - C_V (M - a I)$. It keeps the oblique part and satisfies $T'^2 = a T'$. If
#   the trained departure from the algebra is mere noise, the model should not miss it, or even gain.
# - **Random, of the same size**: a random change of $O$ with the same $\|T' - T\|$ and the same $V$. It
#   says what a change of that size costs when it goes nowhere in particular.
# - **Random return core, of the same size**: $O + C_V X$ with a random traceless $X$. Like the first it
#   touches the return core $V^{\mathsf T}O$ alone; only its direction in there is random. This is the sharper control.
# - **Zeroed**: $O' = 0$. It says what the head is worth at all.
#
# The loss of each is paired with that of the unchanged model, segment by segment; every segment meets random
# draws of its own; intervals are a bootstrap over segments (95%), with percentiles expanded for so few.
# Groups: the **strong** heads (the highest twentieth where there is none), as many **matched**
# ordinary heads of the same layers, as many with the **lowest** closure, and **all**.

# %% tags=["hide-input"]
result = si.function(
    weights,
    text or None,
    n_segments=n_segments,
    length=length,
    draws=draws,
    single_heads=single_heads or None,
    single_segments=single_segments,
    threshold=threshold,
    max_bytes=max_gigabytes * 1e9,
    results_dir=results_dir,
)
effects, facts = result.effects, result.effects.attrs
together = effects[effects.scope == "together"]
main = effects.group.iloc[0] if result.measured else ""
if result.measured:
    lines = [
        f"transformers ran {weights.name} on {facts['n_segments']} segments of {facts['length']} tokens of "
        f"{facts['text']}."
    ]
    if facts["measure"] == "output change":
        lines.append(
            "**This checkpoint has no trained head that predicts tokens, so there is no loss.** "
            "In its place stands the change of the model's own output: the squared length of the change "
            "of the last hidden states, as a share of their own. It cannot fall below zero, so it says "
            "how much the model feels a change, and not whether it is for the worse."
        )
    else:
        lines.append(f"The {facts['measure']} of the unchanged model is **{facts['base']:.3f}**.")
    if facts["measure"] == "masked-token loss":
        lines.append("The same 15% of the tokens are masked every time.")
    if main == "highest":
        lines.append(
            f"**No head reaches $P \\geq {threshold:g}$**; the heads of the highest closure stand in."
        )
else:
    lines = [
        f"**The model was not run here**: {facts['reason']}. Whether its prediction depends on closure "
        "cannot be said from factors. What they do show is the size of the step."
    ]
display(Markdown(" ".join(lines)))

# %% tags=["hide-input"]
anchors = si.sharing(weights, threshold=threshold).anchors
away = anchors.remainder_energy
display(
    Markdown(
        "The step to the exact member takes away the share of $\\|T\\|^2$ that lies outside of the algebra: "
        f"{away.median():.2f} in the median over all heads"
        + (
            f", {away[anchors.strong].median():.2f} over the strong ones."
            if anchors.strong.any()
            else "."
        )
        + " So the steps of different groups are of different size, and each is compared with random "
        "steps of its own size."
    )
)

# %% [markdown]
# ## Groups, changed together

# %% tags=["hide-input"] mystnb={"figure": {"caption": "What changing all heads of a group at once does to the model, with 95% intervals over segments. Numbers of heads in brackets."}, "image": {"alt": "Points with intervals on a logarithmic axis: projection, two random changes and zeroing, for four groups of heads"}}
if result.measured:
    display(si.plots.interventions(effects))

# %% tags=["hide-input"]
if result.measured:
    wide = together.assign(
        text=[
            f"{row.delta:+.4f} [{row.low:+.4f}, {row.high:+.4f}]" for row in together.itertuples()
        ]
    )
    sizes = together[together.intervention == "projected"].set_index("group").relative_change
    wide = wide.pivot(index="group", columns="intervention", values="text").loc[sizes.index]
    order = ["projected", "random", "random return", "zeroed"]
    wide = wide[[name for name in order if name in wide]]
    wide.insert(0, "step", [f"{size:.2f}" for size in sizes])
    display(
        wide.rename_axis(None)
        .rename_axis(None, axis=1)
        .fillna("–")
        .style.set_caption(
            f"Change of the measure ({facts['unit']}) with 95% intervals; step: |T' - T| / |T|"
        )
    )

# %% [markdown]
# ## Is the direction special?
#
# The step to the exact member, less the random steps of the same size, paired in each segment. Above zero: the
# trained departure from the algebra carries *more* function than noise of its size. Below zero: moving towards
# closure is gentler than chance.

# %% tags=["hide-input"]
if result.measured:
    table = contrasts(result)
    more, less = (
        ("changes the output more than", "changes the output less than")
        if facts["measure"] == "output change"
        else ("costs more than", "costs less than")
    )
    display(
        table.rename(columns={"control_delta": "random", "low": "95% from", "high": "to"})
        .style.format(precision=4)
        .hide(axis="index")
        .set_caption(
            "The exact member against random changes, with 95% intervals of the difference"
        )
    )
    words = []
    for row in table.itertuples():
        verdict = more if row.low > 0 else less if row.high < 0 else "cannot be told from"
        words.append(
            f"- {row.group} heads: the exact member **{verdict}** "
            + ("random changes" if row.control == "random" else "random changes of the return core")
            + f" of its size ({row.difference:+.4f}, {row.low:+.4f} to {row.high:+.4f})."
        )
    display(Markdown("\n".join(words)))

# %% [markdown]
# ## One head at a time

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Heads changed alone, a mark a head. Above the dotted line the step to the exact member matters more than a random one of the same size."}, "image": {"alt": "Scatter of the effect of the projection against that of a random change, for single heads of three groups"}}
if result.measured:
    display(si.plots.single_heads(effects))

# %% tags=["hide-input"]
if result.measured:
    single = effects[effects.scope == "single"].pivot_table(
        index=["group", "layer", "head"], columns="intervention", values="delta", sort=False
    )
    lines = [
        f"{group}: larger than random for {(part.projected > part.random).sum()} of {len(part)}, "
        f"median {part.projected.median():+.4f} against {part.random.median():+.4f}, zeroed "
        f"{part.zeroed.median():+.4f}"
        for group, part in single.groupby(level="group", sort=False)
    ]
    display(
        Markdown(
            f"On {facts['single_segments']} segments, and so with more noise than above. "
            + "; ".join(lines)
            + "."
        )
    )

# %% [markdown]
# ## Dose and response
#
# A step is one point. Move heads by $t$ along a path: $t = 0$ is as trained, $t = 1$ the end, and $t < 0$ leads
# away. One path is the straight line to the **exact member**. The other keeps singular values, angles and $V$, and
# turns the core to the **best orientation** that the constructive search finds: closure without the algebra's
# scale. If the model wanted closure, the curves would fall towards $t = 1$. If training has settled at
# the best place, they have their floor at $t = 0$.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Above: the model's measure along both paths, with 95% intervals over segments; each panel has its own scale. Below: closure of the moved heads."}, "image": {"alt": "Curves of the change of the loss and of closure against the position on the path, for a group and two single heads"}}
if result.measured:
    display(si.plots.dose_response(result.dose))

# %% tags=["hide-input"]
if result.measured:
    lines = []
    for (scope, group, layer, head, path), part in result.dose.groupby(
        ["scope", "group", "layer", "head", "path"], sort=False
    ):
        best = part.loc[part.delta.idxmin()]
        who = (
            f"{group} heads together"
            if scope == "together"
            else f"{group}, layer {layer}, head {head}"
        )
        end = part[part.t == 1].iloc[0]
        if facts["measure"] == "output change":
            where = "the lowest point is as trained by definition"
        elif best.t == 0:
            where = "the lowest point is as trained"
        else:
            where = (
                f"the lowest point is at $t = {best.t:g}$ "
                f"({best.delta:+.4f}, {best.low:+.4f} to {best.high:+.4f})"
            )
        lines.append(
            f"- {who}, {path}: {where}; at $t = 1$, where closure is {end.closure:.2f} and the step "
            f"{end.relative_change:.2f} of $\\|T\\|$, the change is {end.delta:+.4f}."
        )
    display(Markdown("\n".join(lines)))

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
if result.measured:
    table = contrasts(result).set_index(["group", "control"])
    delta = together.set_index(["group", "intervention"]).delta
    share = delta[main, "projected"] / delta[main, "zeroed"]
    row = table.loc[(main, "random")]
    if delta[main, "zeroed"] > 0:
        lines = [
            f"Making the {main} heads exactly closed has {share:.0%} of the effect of removing them."
        ]
    else:
        lines = [
            f"Removing the {main} heads does not hurt this model on this text, so little can be said "
            "of their closure."
        ]
    if row.low > 0:
        lines.append(
            "It has **more** effect than random changes of the same size: what keeps trained heads from being "
            "exact is not mere noise to the model."
        )
    elif row.high < 0:
        lines.append(
            "It has **less** effect than random changes of the same size: the model is less sensitive in "
            "this direction than in others."
        )
    else:
        lines.append("Its effect cannot be told from that of random changes of the same size.")
    if (main, "random return") in table.index:
        sharper = table.loc[(main, "random return")]
        if sharper.low > 0:
            verdict = "it has more effect, too."
        elif sharper.high < 0:
            verdict = "it has less effect."
        else:
            verdict = "it cannot be told apart" + (
                ": the excess belongs to the return core as a whole, and not to the way to closure."
                if row.low > 0
                else "."
            )
        lines.append(
            f"Against random changes of the return core, where the projection itself acts, {verdict}"
        )
    lines.append(
        "The paper has no such experiment to compare with. These are one model and one text; the "
        "projection holds $V$ and the oblique part, and other ways to make a head exact could cost more or less. A model that "
        "was trained with exact heads could do as well as this one: nothing here tests that."
    )
    display(Markdown(" ".join(lines)))
else:
    display(Markdown("Without a running model, nothing is claimed."))

# %% [markdown]
# ## Exercises
#
# 1. Show that $V^{\mathsf T} O' = a I$ for $O' = O - C_V(M - aI)$, and hence $T'^2 = a T'$.
#
# :::{dropdown} Solution
# $V^{\mathsf T}C_V = I$, so $V^{\mathsf T}O' = M - (M - aI) = aI$ and $T'^2 = O'(V^{\mathsf T}O')V^{\mathsf T} = a\,O'V^{\mathsf T}$.
# :::
#
# 2. Why is zeroing a head no control for the projection?
#
# :::{dropdown} Solution
# It is a change of another size. A step that is a tenth as long costs, near a minimum, about a hundredth, and that
# is no sign that its direction is harmless. Only steps of equal size are compared.
# :::
#
# 3. At a minimum of the loss, how does the change grow with $t$ for small $t$, and where do you see it?
#
# :::{dropdown} Solution
# Quadratically, and alike on both sides of $t = 0$. A curve with a slope at $t = 0$ says that this text is not the one
# that the model was trained on, or that training would have gone on. The output change of a model without a loss is
# quadratic by its making.
# :::
