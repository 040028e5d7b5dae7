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
#     scope: once
#     takes: long
# ---

# %% [markdown]
# # Training lineages
#
# The chapters before this one look at models as training left them. This one watches training itself:
#
# > *When does the orientation of a head appear? And what grows on the way to closure: what spectrum
# > and angles allow, or how much of it the orientation takes?*
#
# Three small decoders are trained here, from their first random weights on, and every checkpoint is kept.
# The same code follows any public lineage by name.

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
lineages = "live-mha live-gqa live-mqa"  # live ones, or public ones as org/name, blanks between
results_dir = "results"  # tables go to <results_dir>/all-models/
steps = 0  # of training, for live lineages; 0 for the recipe's own
scale = 1  # of live lineages: a factor of the width and the number of heads
checkpoints = 0  # of each lineage, spread over log steps; 0 for all, of public ones four
top = 0.25  # share of the heads of a lineage called strong, by final closure; 0 for all from 0.9 on
n_starts = 1  # searches of the capacity of a head, beside the one from the trained orientation
max_steps = 50  # steps allowed to each search

# %% tags=["hide-input"]
from dataclasses import asdict

import pandas as pd
from IPython.display import Markdown, display

import scaled_idempotence as si
from scaled_idempotence.experiments.trajectory import (
    POOLED,
    departures,
    random_median,
    step_medians,
)
from scaled_idempotence.lineages.live import LIVE, live_recipe
from scaled_idempotence.plots.training_lineages import CHI_SQUARE_MEDIAN

si.plots.set_theme()
names = lineages.split()
live = [name for name in names if name in LIVE]
result = si.trajectory(
    names,
    checkpoints or None,
    top=top or None,
    steps=steps or None,
    scale=scale,
    n_starts=n_starts,
    max_steps=max_steps,
    results_dir=results_dir,
)
heads, gaps = result.heads, result.gaps
used = result.checkpoints[result.checkpoints.status == "used"]
one_step = {name: part[part.final] for name, part in heads.groupby("lineage", sort=False)}
display(
    Markdown(
        "This page follows "
        + "; ".join(
            f"**{name}** ({part.topology.iloc[0]}, {part.layer.nunique()} layers, {len(part)} heads, "
            f"{(used.lineage == name).sum()} checkpoints from step {used.step[used.lineage == name].min()} "
            f"to {part.step.iloc[0]})"
            for name, part in one_step.items()
        )
        + "."
    )
)

# %% [markdown]
# ## Lineages trained here
#
# The models are small decoders of the usual kind: RMSNorm before attention and MLP, rotary positions, a gated
# MLP, and bytes for tokens. They differ in how many value heads they have (MHA, GQA, MQA) and in their seeds.
# The text is one that every CPython ships, the source of its own standard library. AdamW runs at a constant
# rate after a linear rise, so that the last checkpoints differ from the others in nothing but their step.
#
# A run is a function of its recipe to the last bit: one thread, deterministic kernels, batches drawn from
# (seed, step). It is kept in the cache folder; an interrupted run goes on where it stopped.

# %% tags=["hide-input"]
if live:
    recipes = {name: live_recipe(name, steps=steps or None, scale=scale) for name in live}
    display(
        pd.DataFrame({name: map(str, asdict(recipe).values()) for name, recipe in recipes.items()})
        .set_index(pd.Index(asdict(recipes[live[0]]), name="recipe"))
        .style.set_caption("Everything that a run is made of, beside the text and the versions")
    )
else:
    display(Markdown("No lineage of this page was trained here."))

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Loss on modules that were held out of training, at every checkpoint."}, "image": {"alt": "Held-out loss in nats a byte against the training step, a line a lineage"}}
if live:
    display(si.plots.losses(result.checkpoints))

# %% [markdown]
# ## Leaving the null
#
# A head with a random orientation has a closure of about $P_0 \chi^2_1$, where
# $P_0 = \sum s^6 / (\sum s^2)^3$ comes from its own spectrum at that step
# (see the chapter on scrambling). So $P / P_0$ tells orientation from spectrum: its median is that of
# $\chi^2_1$, 0.455, as long as nothing is oriented, *also if the spectrum changes meanwhile*.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Left: median closure over the steps; thin lines are what a random turn of the same spectra would have. Right: the median of closure over its closed-form null."}, "image": {"alt": "Median closure and median of closure over null against the training step, a line a lineage"}}
si.plots.leaving_the_null(heads)

# %% tags=["hide-input"]
left = departures(heads)
display(
    left.rename(
        columns={
            "start": "P/P0, first checkpoint",
            "end": "P/P0, last",
            "bound": "99% bound of a random median",
            "left": "above it from step",
        }
    )
    .style.format(precision=3, na_rep="never")
    .format({"above it from step": "{:.0f}"}, na_rep="never")
    .hide(axis="index")
    .set_caption("Medians over the heads of a lineage")
)
chi = CHI_SQUARE_MEDIAN
first_steps = heads[heads.step == heads.groupby("lineage").step.transform("min")]
start, end = first_steps.null_ratio.median(), heads[heads.final].null_ratio.median()
times = end / chi
display(
    Markdown(
        f"Over the {len(first_steps)} heads of all lineages the median of $P/P_0$ is **{start:.3f}** at the "
        f"first checkpoint and **{end:.2f}** at the last. Of a random orientation the expected median is "
        f"{chi:.3f}, and over as many heads it lies between {random_median(len(first_steps), 0.025):.2f} and "
        f"{random_median(len(first_steps), 0.975):.2f} in 95% of cases. The last one is "
        f"**{times:.1f} times** the expected value. "
        + (
            "Every lineage leaves its null for good, at step "
            + ", ".join(f"{row.left:.0f} ({row.lineage})" for row in left.itertuples())
            + "."
            if left.left.notna().all()
            else f"Of {len(left)} lineages, {left.left.isna().sum()} do not leave their null for good."
        )
    )
)

# %% [markdown]
# ## What the spectra do meanwhile
#
# A rank-one operator has $P = 1$ whatever its orientation, unless it is nilpotent. A spectrum that collapses
# therefore raises closure *and* its null. In small models trained fast this is not a detail: closure alone
# would tell a story about orientation that is partly one about rank.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Effective rank of the heads, and the null that their spectra imply: medians, and from quartile to quartile."}, "image": {"alt": "Effective rank and closed-form null against the training step, a line and a band a lineage"}}
si.plots.spectra_over_steps(heads)

# %% tags=["hide-input"]
medians = step_medians(heads)
lines = []
for name, part in medians.groupby("lineage", sort=False):
    first, last, peak = part.iloc[0], part.iloc[-1], part.loc[part.null_ratio.idxmax()]
    fall = (
        f"it was highest, {peak.null_ratio:.1f}, at step {peak.step:.0f}"
        if peak.step != last.step
        else "which is its highest value"
    )
    lines.append(
        f"* **{name}**: effective rank from {first.effective_rank:.1f} to {last.effective_rank:.1f}, the null "
        f"$P_0$ from {first.null:.2g} to {last.null:.2g}, closure from {first.closure:.2g} to "
        f"{last.closure:.2g}. $P/P_0$ ends at {last.null_ratio:.1f}; {fall}."
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# ## Single heads
#
# Medians hide that heads do not go together.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Closure of every head. Those that end strong are highlighted; the dashed line is the median."}, "image": {"alt": "Closure of single heads against the training step, a panel a lineage, final strong heads highlighted"}}
si.plots.heads_over_steps(heads)

# %% tags=["hide-input"]
lines = []
for name, part in heads.groupby("lineage", sort=False):
    table = part.pivot(index=["layer", "head"], columns="step", values="closure")
    peak = table.idxmax(axis=1)
    falling = (table.max(axis=1) > 1.5 * table.iloc[:, -1]).sum()
    by_layer = table.iloc[:, -1].groupby("layer").median()
    lines.append(
        f"* **{name}**: {(peak == table.columns[-1]).sum()} of {len(table)} heads have their highest closure "
        f"at the last checkpoint, and {falling} have lost a third of their highest one or more. The layer with "
        f"the highest final median is {by_layer.idxmax()} ({by_layer.max():.2f}), the lowest "
        f"{by_layer.idxmin()} ({by_layer.min():.3f})."
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# ## Strong to be, and ordinary
#
# As in the paper, two groups are fixed **at the final checkpoint** and then followed back: the strong heads,
# and as many ordinary heads of the same layers. The group is chosen by the final closure, so a gap in closure
# at the end is no finding. When it opens is one, and so is what else differs: the **capacity** that spectrum
# and angles leave open (23), or the **attainment** of it (24).

# %% tags=["hide-input"]
final = heads[heads.final]
strong = final[final.group == "strong"]
matched = final[final.group == "matched"]
chosen = (
    f"the {top:.0%} of each lineage's heads with the highest final closure, whatever it is"
    if top
    else "closure of at least 0.9 at the end"
)
display(
    Markdown(
        f"Strong here means **{chosen}**: {len(strong)} heads, with a final closure from "
        f"{strong.closure.min():.2f} to {strong.closure.max():.2f}, beside {len(matched)} matched ones from "
        f"{matched.closure.min():.3f} to {matched.closure.max():.2f}. "
        + (
            f"{(final.closure >= 0.9).sum()} of all {len(final)} heads reach the paper's threshold of 0.9."
        )
        if len(strong)
        else "**No head of these lineages is strong**, so there are no groups to compare."
    )
)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Heads that end strong, and ordinary heads of the same layers: medians, and from quartile to quartile."}, "image": {"alt": "Closure, capacity and attainment against the training step for heads that end strong and for ordinary heads, a row a lineage"}}
if len(strong):
    display(si.plots.groups_over_steps(heads))

# %% [markdown]
# ## Capacity against attainment
#
# Gaps are differences of medians. The intervals come from a hierarchical bootstrap, which draws lineages and
# then, inside each, layers: heads of a layer are not independent, and neither are layers of a model. With few
# lineages and few layers the intervals are wide, and rough.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Strong minus ordinary, over training. Triangles at the right edge are the final gaps of the paper's three lineages."}, "image": {"alt": "Gaps in closure, capacity and attainment against the training step, with bootstrap intervals of the pooled gap"}}
if len(strong):
    display(si.plots.gaps_over_steps(gaps, si.paper.TRAJECTORY))

# %% tags=["hide-input"]
whole = POOLED if (gaps.lineage == POOLED).any() else names[0]
shown = gaps[(gaps.lineage == whole) & gaps.gap.notna()]
if len(shown):
    wide = shown.pivot_table(index="step", columns="quantity", values=["gap", "low", "high"])
    text = wide.apply(
        lambda row: pd.Series(
            {
                quantity: f"{row['gap', quantity]:+.3f}"
                + (
                    f" ({row['low', quantity]:+.3f} to {row['high', quantity]:+.3f})"
                    if ("low", quantity) in row.index
                    else ""
                )
                for quantity in ("closure", "capacity", "attainment")
            }
        ),
        axis=1,
    )
    display(
        text.rename_axis("step").style.set_caption(
            f"Gap between the groups, {'all lineages pooled' if whole == POOLED else whole}, and its 95% interval"
        )
    )
    last = shown[shown.final].set_index("quantity")
    early = shown[shown.step == shown.step.min()].set_index("quantity")
    share = last.gap.capacity / last.gap.closure if last.gap.closure else float("nan")
    crosses = last.low.capacity <= 0 <= last.high.capacity
    display(
        Markdown(
            f"At the first common checkpoint the gap in closure is {early.gap.closure:+.3f} and that in capacity "
            f"{early.gap.capacity:+.3f}: heads that will end strong are not born with more room. At the end the "
            f"gap in closure is **{last.gap.closure:+.3f}**, in attainment **{last.gap.attainment:+.3f}** and in "
            f"capacity **{last.gap.capacity:+.3f}**, {abs(share):.0%} of that in closure"
            + (", with an interval that holds 0." if crosses else ".")
            if abs(early.gap.capacity) < 0.05
            else f"At the first common checkpoint the groups already differ by {early.gap.capacity:+.3f} in "
            f"capacity. At the end the gap in closure is {last.gap.closure:+.3f}, in attainment "
            f"{last.gap.attainment:+.3f} and in capacity {last.gap.capacity:+.3f}."
        )
    )

# %% [markdown]
# ## Are the checkpoints what they say?
#
# Public lineages have branches that serve the weights of another step. No two steps of a run share weights,
# except where the learning rate is still zero, so contents are compared before anything is computed: hashes of
# files where the hub gives them, and of every layer's factors as read. What repeats the final weights, in whole
# or in part, is named and left out; of equal neighbours one is kept.

# %% tags=["hide-input"]
audit = result.checkpoints
bad = audit[audit.status != "used"]
display(
    Markdown(
        f"Of {len(audit)} checkpoints, {len(used)} are used"
        + ("; all contents differ." if not len(bad) else f" and **{len(bad)} are left out**.")
    )
)
if len(bad):
    display(bad[["lineage", "step", "revision", "status"]].style.hide(axis="index"))

# %% tags=["hide-input"]
ends = audit[audit.status == "used"].groupby("lineage", sort=False).tail(1)
display(
    ends[["lineage", "step", "content"]]
    .style.hide(axis="index")
    .set_caption("Hash of all OV factors of the final checkpoints: the same on the same machine")
)

# %% [markdown]
# ## In the paper, and here

# %% tags=["hide-input"]
first_groups = first_steps.groupby("group").capacity.median()
here = pd.DataFrame(
    {
        "early_capacity_strong": first_groups.get("strong"),
        "early_capacity_matched": first_groups.get("matched"),
        **{f"final_gap_{row.quantity}": row.gap for row in shown[shown.final].itertuples()},
    },
    index=[f"{', '.join(names)}, here"],
)
display(
    pd.concat([si.paper.TRAJECTORY, here])
    .rename(columns=lambda name: name.replace("_", " "))
    .style.format(precision=3, na_rep="–")
)
paper = si.paper.TRAJECTORY
claims = [
    (
        "*Early on, both groups have the same capacity*",
        abs(here.early_capacity_strong - here.early_capacity_matched).iloc[0] < 0.05,
    ),
]
if len(shown):
    claims.append(
        (
            "*The final gap in attainment is several times that in capacity*",
            last.gap.attainment > 3 * abs(last.gap.capacity),
        )
    )
display(
    Markdown(
        "; ".join(
            f"{claim}: {'holds' if holds else '**does not hold**'}" for claim, holds in claims
        )
        + ". The paper's early checkpoints lie far into training; the first one here is the random start."
        if live
        else "; ".join(
            f"{claim}: {'holds' if holds else '**does not hold**'}" for claim, holds in claims
        )
        + "."
    )
)

# %% [markdown]
# ## What small lineages do and do not say
#
# Where the tables above say that a lineage leaves its null, they show that orientation is made by training and
# not by the initial weights, and that it comes within the first steps of it. They let anyone look at every step.
#
# They do not say when it appears in a large model. Lineages trained here have a few layers and heads, a narrow
# residual stream, one text and a constant learning rate, and see no more bytes than a large model sees tokens in
# its first step or two. All of it is the beginning of training. Nor can the top heads of such a lineage stand
# for the strong heads of the paper, which reach a closure of 0.9.
#
# And they are a **chosen** demonstration. About twenty settings of head dimension, learning rate and length were
# tried for ones that leave the null within minutes; in most of the others $P/P_0$ rose less, and in some
# that were trained on it had fallen again. With a learning rate several times as high, effective rank collapses,
# closure rises far higher, and $P/P_0$ hardly moves: closure alone would have called that success. The seeds were
# taken, out of eight for each lineage, for a random start near its expected median, since the median of so few
# random heads wanders; other seeds ended much the same. So the tables say what *can* happen, and nothing about how
# often it does. The parameters `steps` and `scale` are there to try others.
#
# A public lineage is followed by its name, for example on the command line:
#
# ```console
# $ scaled-idempotence run smollm2-135m --notebook 06 -p lineages="EleutherAI/pythia-160m" -p top=0
# ```
#
# ## Exercises
#
# 1. Train the lineages for twice as many steps. Does $P/P_0$ go on rising? What does the effective rank do?
#
# :::{dropdown} How to
# `scaled-idempotence train --steps 512` shows a bar and goes on from nothing, since a longer run is another
# recipe; then run this notebook with `-p steps=512`.
# :::
#
# 2. Why is the group of strong heads fixed at the end, and not at each checkpoint? What would the
#    gap in closure at an early checkpoint be otherwise?
#
# :::{dropdown} Solution
# Heads picked by their closure at a checkpoint differ in it by construction, at step 0 too, where closure is
# noise. Picked at the end, the gap at step 0 is an honest zero, within noise.
# :::
#
# 3. Two branches of a lineage have equal weights, and a step between them has others. Which of them is
#    wrong? What would you ask the authors?
#
# :::{dropdown} Solution
# Nothing in the weights tells, so `si.trajectory` leaves out both, unless one of them is the final checkpoint,
# which is taken at its word. The loss of the model at either step would tell.
# :::
