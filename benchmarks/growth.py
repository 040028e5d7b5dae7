"""How the time of a layer's bare survey grows with its heads and with its width.

Beside it the peers of ``benchmarks/survey.py``, on a few heads and scaled. The exponents are slopes
of straight lines through the logarithms. Run with ``make bench``.
"""

from __future__ import annotations

import sys

import numpy as np
import report
from rich.console import Console
from rich.table import Table
from survey import bare, dense, factored, make_layer, pairs_of

# Everything else is held at these while one thing grows.
H, G, R, D = 32, 4, 64, 2048
HEADS = (16, 32, 64, 128)
WIDTHS = (1024, 2048, 4096, 8192)
DENSE_WIDTHS = (1024, 2048, 4096)  # the next would take a minute a head
ROUNDS = 2


def times(n_heads, n_values, width, with_dense):
    """Seconds of a layer by each method."""
    O, V, value_head = make_layer(n_heads, n_values, R, width)
    pairs = pairs_of([0], value_head, n_values)
    functions = {
        "survey": lambda: bare(O, V, value_head),
        "factored": lambda: [factored(O[h], V[g]) for h, g in pairs],
    }
    found = report.in_turns(functions, ROUNDS)
    found["factored"] *= n_heads
    if with_dense:
        found["dense"] = n_heads * report.seconds(lambda: [dense(O[h], V[g]) for h, g in pairs])
    return found


def main() -> int:
    """Measure, print and write."""
    import transformer_lens  # noqa: F401 (its import is no part of a time)

    rows = []
    for grows, sizes in {
        "heads": HEADS,
        "heads, a value head each": HEADS,
        "width": WIDTHS,
    }.items():
        for size in sizes:
            heads = H if grows == "width" else size
            values = size if grows == "heads, a value head each" else G
            width = size if grows == "width" else D
            with_dense = width in DENSE_WIDTHS
            for method, took in times(heads, values, width, with_dense).items():
                rows.append({"grows": grows, "size": size, "method": method, "seconds": took})
    exponents = []
    for key in dict.fromkeys((row["grows"], row["method"]) for row in rows):
        series = [row for row in rows if (row["grows"], row["method"]) == key]
        x, y = (np.log([row[column] for row in series]) for column in ("size", "seconds"))
        exponents.append(
            {"grows": key[0], "method": key[1], "exponent": float(np.polyfit(x, y, 1)[0])}
        )
    held = {"heads": H, "value_heads": G, "d_head": R, "d_model": D}
    report.write("growth", {"held": held, "rows": rows, "exponents": exponents})
    table = Table("time grows with", "of", "exponent")
    for row in exponents:
        table.add_row(row["grows"], row["method"], f"{row['exponent']:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
