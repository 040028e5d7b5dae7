"""The bare survey of a layer against what a user would do today, in one run.

The bare survey is closure and wrong-V of every head, from factors as a checkpoint holds them. Its
peers are the dense d x d computation, and `FactoredMatrix` of TransformerLens (norms by its SVD,
inner product by its eigenvalues), both for the trained and one wrong pair of each head, timed on a
few heads and scaled to the layer: every head costs the same. Beside them stands the machine's own
float64 GEMM. All take turns in one process. Exit status 1 if a limit at the largest shape is
missed. Run with ``make bench``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import report
import torch
from rich.console import Console
from rich.table import Table

from scaled_idempotence.linalg.factors import value_head_index
from scaled_idempotence.linalg.pairing import layer_scores, wrong_v_closure

# Query heads, value heads, head dimension and width of a layer; the last has the limits.
SHAPES = {
    "SmolLM2-135M": (9, 3, 64, 576),
    "Pythia-2.8B": (32, 32, 80, 2560),
    "Qwen3-235B": (64, 4, 128, 4096),
}
GEMM = 4096
LEAST_OVER_DENSE, LEAST_OVER_FACTORED, LEAST_SHARE = 300, 30, 0.8


def make_layer(H, G, r, d):
    """Random factors, as views of the two matrices that a checkpoint holds."""
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(d, H * r, generator=generator, dtype=torch.float64)
    value = torch.randn(G, r, d, generator=generator, dtype=torch.float64)
    return output.view(d, H, r).transpose(0, 1), value.mT, value_head_index(H, G)


def operations(H, G, r, d):
    """Floating-point operations of the bare survey: cores of all pairings, Grams, scores.

    Grams are counted whole, as a machine with nothing but GEMM would make them; the survey leaves
    out the quarter of each that is there by symmetry.
    """
    return 2 * d * H * G * r**2 + 2 * d * (H + G) * r**2 + 4 * H * G * r**3


def bare(O, V, value_head):
    """Closure of the trained and of the wrong pairs, as the survey computes it."""
    scores = layer_scores(O, V, value_head)
    return torch.stack([scores.trained.closure, wrong_v_closure(scores.pairs, value_head)])


def dense(O, V):
    """Closure of one pair from d x d matrices."""
    T = O @ V.mT
    T2 = T @ T
    return (T2 * T).sum() ** 2 / (T2.square().sum() * T.square().sum())


def factored(O, V):
    """Closure of one pair by TransformerLens."""
    from transformer_lens import FactoredMatrix

    T = FactoredMatrix(O, V.mT)
    T2 = T @ T
    return (T.T @ T2).eigenvalues.sum().real ** 2 / (T2.norm() ** 2 * T.norm() ** 2)


def pairs_of(heads, value_head, G):
    """Trained and wrong pair of some heads."""
    return [(h, g) for h in heads for g in (value_head[h], (value_head[h] + 1) % G)]


def compare(shape, rounds):
    """Time one shape; figures are of a whole layer."""
    H, G, _r, d = shape
    O, V, value_head = make_layer(*shape)
    heads = range(min(2, H) if d > 1000 else H)
    pairs = pairs_of(heads, value_head, G)
    square = torch.randn(GEMM, GEMM, dtype=torch.float64)

    def on_pairs(score):
        return torch.stack([score(O[h], V[g]) for h, g in pairs]).view(-1, 2).T

    ours = bare(O, V, value_head)[:, list(heads)]
    difference = max((on_pairs(f) - ours).abs().max().item() for f in (dense, factored))
    quick = {"gemm": lambda: square @ square, "survey": lambda: bare(O, V, value_head)}
    times = report.in_turns(quick, 3 * rounds)
    times |= report.in_turns({"factored": lambda: on_pairs(factored)}, rounds)
    # Of the dense computation one round is as long as all rounds of the others.
    times |= {"dense": report.seconds(lambda: on_pairs(dense))}
    whole = H / len(heads)
    rate = 2 * GEMM**3 / times["gemm"]
    return {
        "heads": H,
        "value_heads": G,
        "d_head": shape[2],
        "d_model": d,
        "seconds": times["survey"],
        "dense_seconds": times["dense"] * whole,
        "factored_seconds": times["factored"] * whole,
        "timed_heads": len(heads),
        "over_dense": times["dense"] * whole / times["survey"],
        "over_factored": times["factored"] * whole / times["survey"],
        "gemm_rate": rate,
        "share_of_gemm": operations(*shape) / times["survey"] / rate,
        "difference": difference,
    }


METHODS = {
    "survey": lambda O, V, g: bare(O, V, g),
    "dense": lambda O, V, g: dense(O[0], V[0]),
    "factored": lambda O, V, g: factored(O[0], V[0]),
}


def print_peak(shape, method):
    """Print how much a method adds to the peak of a process that has the factors of a layer.

    The peers take one pair at a time, so that one pair is their peak.
    """
    if method == "factored":
        import transformer_lens  # noqa: F401 (before the factors, as whoever uses it has it)
    layer = make_layer(*shape)
    small = make_layer(2, 1, 8, 16)
    METHODS[method](*small)
    before = report.peak_so_far()
    METHODS[method](*layer)
    print(report.peak_so_far() - before)


def main() -> int:
    """Measure, print, write; say by the exit status whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the peers; thrice as many of the rest"
    )
    parser.add_argument("--peak", choices=METHODS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    largest = list(SHAPES)[-1]
    if options.peak:
        print_peak(SHAPES[largest], options.peak)
        return 0

    import transformer_lens  # noqa: F401 (its import is no part of a time)

    found = {name: compare(shape, options.rounds) for name, shape in SHAPES.items()}
    for method in METHODS:
        command = [sys.executable, __file__, "--peak", method]
        found[largest][f"peak_{method}"] = report.peak_of(command)
    report.write("survey", {"shapes": found})

    table = Table("", *found, title=f"{torch.get_num_threads()} threads; times of a layer")
    for label, text in {
        "heads, r, d": "{heads}/{value_heads}, {d_head}, {d_model}",
        "bare survey, ms": "{ms:,.1f}",
        "times faster than dense": "{over_dense:,.0f}",
        "times faster than FactoredMatrix": "{over_factored:,.0f}",
        "share of the GEMM rate": "{share_of_gemm:.0%}",
        "largest difference": "{difference:.0e}",
    }.items():
        cells = [text.format(**row, ms=1e3 * row["seconds"]) for row in found.values()]
        table.add_row(label, *cells)
    Console().print(table)
    last = found[largest]
    for method in METHODS:
        print(f"{method} adds {last[f'peak_{method}'] / 1e6:,.0f} MB to the peak at {largest}")
    held = (
        last["over_dense"] >= LEAST_OVER_DENSE
        and last["over_factored"] >= LEAST_OVER_FACTORED
        and last["share_of_gemm"] >= LEAST_SHARE
        and max(row["difference"] for row in found.values()) < 1e-10
    )
    return 0 if held else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"a measurement failed: {error}")
