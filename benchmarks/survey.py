"""Closure of a layer through r x r cores against the dense d x d computation, in one run.

Prints ratios: seconds depend on the machine, ratios much less. Run with ``make bench``.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.benchmark import Timer

from scaled_idempotence.linalg.factors import value_head_index
from scaled_idempotence.linalg.pairing import layer_scores, wrong_v_closure

# (model, query heads, value heads, head dimension, width)
SHAPES = (
    ("all-MiniLM-L6", 12, 12, 32, 384),
    ("SmolLM2-135M", 9, 3, 64, 576),
    ("Gemma 3 270M", 4, 1, 256, 640),
    ("Qwen3-0.6B", 16, 8, 128, 1024),
)


def through_cores(O, V, value_head):
    """Closure of the trained pairs, and of all others, as the survey computes it."""
    scores = layer_scores(O, V, value_head)
    return scores.trained.closure, wrong_v_closure(scores.pairs, value_head)


def dense(O, V, value_head):
    """The same, of the trained pairs and one wrong pair each, head by head from d x d matrices."""
    results = []
    for partner in (value_head, (value_head + 1) % V.shape[0]):
        scores = []
        for factor, g in zip(O, partner.tolist(), strict=True):
            T = factor @ V[g].mT
            T2 = T @ T
            scores.append((T2 * T).sum() ** 2 / (T2.square().sum() * T.square().sum()))
        results.append(torch.stack(scores))
    return results


def seconds(function, *arguments) -> float:
    """Median time of a call."""
    timer = Timer(
        "f(*a)", globals={"f": function, "a": arguments}, num_threads=torch.get_num_threads()
    )
    return timer.blocked_autorange(min_run_time=1.0).median


def main() -> None:
    """Print the table."""
    table = Table("shape", "heads", "r", "d", "cores, ms", "dense, ms", "ratio", "difference")
    for name, H, G, r, d in SHAPES:
        generator = torch.Generator().manual_seed(0)
        O = torch.randn(H, d, r, generator=generator, dtype=torch.float64)
        V = torch.randn(G, d, r, generator=generator, dtype=torch.float64)
        arguments = O, V, value_head_index(H, G)
        ours, theirs = through_cores(*arguments), dense(*arguments)
        difference = (ours[0] - theirs[0]).abs().max().item()
        fast, slow = seconds(through_cores, *arguments), seconds(dense, *arguments)
        table.add_row(
            name,
            f"{H}/{G}",
            str(r),
            str(d),
            f"{1e3 * fast:.2f}",
            f"{1e3 * slow:.1f}",
            f"{slow / fast:.0f}",
            f"{difference:.0e}",
        )
    Console().print(f"{torch.get_num_threads()} threads")
    Console().print(table)


if __name__ == "__main__":
    main()
