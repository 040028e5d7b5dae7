"""The paper's protocol and its published figures; no figure here was computed by this code.

Source: Feng and Li, "Scaled Idempotence in Transformer Attention: Paired OV Geometry and
Shared-Value Algebras", arXiv:2609.01129 (2026).
"""

from __future__ import annotations

import pandas as pd

ARXIV = "arXiv:2609.01129"

#: Closure from which the paper calls a head strong.
STRONG = 0.9
#: Thresholds of the paper's sweep.
THRESHOLDS = (0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975)
#: Draws a head in the paper's protocol.
PERMUTATION_DRAWS = 8
HAAR_DRAWS = 2
#: Heads a layer in the sample that is blind to closure.
BLIND_HEADS = 2
#: Share of all heads in the high and in the low group.
DECILE = 0.1

#: Closure survey of six models. ``wrong_v_median`` is the median closure of wrong-V pairings.
ENDPOINTS = pd.DataFrame(
    [
        ("Pythia-2.8B-deduped", "MHA", 1024, 0.4869, 0.8827, 0.9887, 72, 1.37e-4),
        ("Qwen3-4B-Base", "GQA", 1152, 0.2752, 0.8425, 0.9799, 67, 6.53e-5),
        ("Mistral-7B-v0.3", "GQA", 1024, 0.3236, 0.8633, 0.9855, 72, 4.77e-5),
        ("OLMo-2-13B (5T)", "MHA", 1600, 0.5251, 0.8827, 0.9854, 128, 5.70e-5),
        ("Qwen2.5-72B", "GQA", 5120, 0.2677, 0.8036, 0.9825, 204, 7.14e-5),
        ("Qwen3-235B-A22B", "GQA", 6016, 0.2794, 0.8255, 0.9894, 338, 1.08e-4),
    ],
    columns=["model", "topology", "heads", "median", "q90", "max", "strong", "wrong_v_median"],
).set_index("model")

#: Head dimension of each, from their published configurations: a random pairing of full rank has a
#: closure of about ``1 / r^2``.
HEAD_DIMENSIONS = pd.Series([80, 128, 128, 128, 128, 128], index=ENDPOINTS.index, name="d_head")

#: Statements of the closure survey that are not in the table.
SURVEY = {
    "wrong_v_below": 0.75,  # no wrong-V pairing of any model reaches it
    "negative_alpha": (0.69, 0.76),  # share of strong heads, models of 13B to 235B
    "return_gain_medians": (0.0317, 2.512),  # of strong heads, smallest and largest model median
}

#: Factorization (7-10): largest error of ``P_D(K) = P(T)`` that float64 may leave.
FACTORIZATION = {"identity_error_below": 1e-10}

#: Factorial reassignment (21): share of layers with a positive interaction, by model.
FACTORIAL = {"positive_layers": (0.955, 1.0)}

#: Orientation study of nine models (22).
ORIENTATION = {
    "models": 9,
    "heads": 7304,
    "layers": 268,
    "trained": 0.336,
    "permutation": 1.04e-4,
    "haar": 1.67e-4,
    "permutation_wins": 0.9864,
    "haar_wins": 0.9838,
    "scrambled_below": 0.85,  # no counterfactual reaches it
    "singular_value_error": 1e-12,  # relative; what the scrambles hold fixed
}

#: Strong heads of the nine models under an isoclinic support, and what predicts strength.
ISOCLINIC = {"strong": 1180, "stay_strong": 1088, "auroc_latent": 0.984, "auroc_isotropy": 0.945}

#: Gain inheritance (25) in seven models that share values: medians over pairs.
SHARING = pd.DataFrame(
    [
        ("TinyLlama-1.1B", 32, 224, 0.932, 0.974, 0.013),
        ("SmolLM3-3B", 35, 105, 0.915, 0.966, 0.019),
        ("Qwen3-4B-Base", 67, 201, 0.928, 0.964, 0.027),
        ("Mistral-7B", 72, 216, 0.934, 0.970, 0.014),
        ("Granite-3.3-2B", 142, 426, 0.936, 0.966, 0.017),
        ("Falcon3-3B", 24, 48, 0.913, 0.959, 0.053),
        ("Yi-1.5-6B", 34, 238, 0.922, 0.963, 0.022),
    ],
    columns=["model", "right_heads", "pairs", "F", "rho", "control_rho"],
).set_index("model")

#: Capacity and attainment (23, 24), medians of the paper's models, smallest and largest.
CAPACITY = {
    "ordinary": (0.880, 0.926),
    "strong": (0.988, 0.994),
    "layer_medians_above": 0.8,
}

#: Three training lineages, four checkpoints each: median capacity of the groups at the earliest
#: checkpoint, and the gaps between strong and ordinary heads at the final one.
TRAJECTORY = pd.DataFrame(
    [
        ("OLMo-1B", 0.839, 0.839, 0.412, 0.083, 0.353),
        ("TinyLlama-1.1B", 0.894, 0.899, 0.536, 0.111, 0.488),
        ("Pythia-2.8B-deduped", 0.806, 0.805, 0.368, 0.069, 0.321),
    ],
    columns=[
        "model",
        "early_capacity_strong",
        "early_capacity_matched",
        "final_gap_closure",
        "final_gap_capacity",
        "final_gap_attainment",
    ],
).set_index("model")

#: Natural activations: median squared cosine of the high decile, smallest and largest model.
ACTIVATIONS = {"high_decile": (0.842, 0.886)}
