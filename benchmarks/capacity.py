"""Capacity search against pymanopt on the same heads, in one run.

pymanopt gets 300 iterations of conjugate gradients on Stiefel x Stiefel with the analytic gradient
of the same objective in numpy, from one Haar start a head. The two take turns every few heads, so
that whatever else the machine does slows both alike. Exit status 1 if the default is less than 10
times faster or reaches a lower median. Run with ``make bench``, or with options::

    python benchmarks/capacity.py [--heads 12] [--threads 1]
"""

import argparse
import os
import sys
import time

import numpy as np
import report
import torch

import scaled_idempotence as si
from scaled_idempotence.linalg.capacity import capacity


def spectra(n_heads):
    """Singular values and cosines (n_heads, r) of head 0 of the first layers of SmolLM2-135M."""
    model = si.open_model("smollm2-135m")
    cores, cosines = [], []
    for index in range(n_heads):
        layer = model[index]
        head = si.principal_coordinates(layer.O[0], layer.V[layer.value_head[0]])
        cores.append(head.K)
        cosines.append(head.cosines)
    return si.trained_orientation(torch.stack(cores)).s.numpy(), torch.stack(cosines).numpy()


def pymanopt_capacity(s, c, seed, iterations=300):
    """Closure that pymanopt reaches for one head, and the seconds it takes."""
    import pymanopt
    from pymanopt.manifolds import Product, Stiefel
    from pymanopt.optimizers import ConjugateGradient

    r = len(s)
    s = s / s[0]
    s3, weight, energy = s**3, np.outer(s**2, s**2), (s**2).sum()
    manifold = Product([Stiefel(r, r), Stiefel(r, r)])

    @pymanopt.function.numpy(manifold)
    def cost(L, R):
        G = R.T @ (c[:, None] * L)
        return -((s3 @ G.diagonal()) ** 2) / ((weight * G * G).sum() * energy)

    @pymanopt.function.numpy(manifold)
    def gradient(L, R):
        DL = c[:, None] * L
        G = R.T @ DL
        WG = weight * G
        a, n = s3 @ G.diagonal(), (WG * G).sum()
        H = (-2 * a * a / (n * n * energy)) * WG
        H[np.diag_indices(r)] += 2 * a / (n * energy) * s3
        return -(c[:, None] * (R @ H)), -(DL @ H.T)

    rng = np.random.default_rng(seed)
    start = []
    for _ in range(2):
        Q, R = np.linalg.qr(rng.standard_normal((r, r)))
        start.append(Q * np.sign(R.diagonal()))
    optimizer = ConjugateGradient(
        max_iterations=iterations,
        max_time=1e9,
        min_gradient_norm=1e-12,
        min_step_size=1e-14,
        verbosity=0,
    )
    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient)
    began = time.perf_counter()
    result = optimizer.run(problem, initial_point=start)
    return -result.cost, time.perf_counter() - began


SETTINGS = {
    "shifted pairing, no search": {"max_steps": 0},
    "10 steps": {"max_steps": 10},
    "default": {},
    "three starts": {"n_starts": 3},
    "Haar start only": None,  # handled below: a Haar orientation passed as `trained`
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    s, c = spectra(options.heads)
    S, C = torch.tensor(s), torch.tensor(c)
    generator = torch.Generator().manual_seed(0)
    haar = torch.linalg.qr(torch.randn(2, *s.shape, s.shape[-1], generator=generator).double())[0]
    capacity(S[:1], C[:1], max_steps=10)  # the first call pays for the thread pools

    closures, seconds = {k: [] for k in ("pymanopt", *SETTINGS)}, {}
    seconds = dict.fromkeys(closures, 0.0)
    block = 12  # heads a turn: enough to fill the batch, few enough to share the load
    for i in range(0, len(s), block):
        for h in range(i, min(i + block, len(s))):
            P, t = pymanopt_capacity(s[h], c[h], seed=h)
            closures["pymanopt"].append(P)
            seconds["pymanopt"] += t
        part = slice(i, i + block)
        for name, kwargs in SETTINGS.items():
            if kwargs is None:
                kwargs = {"n_starts": 0, "trained": (haar[0, part], haar[1, part])}
            began = time.perf_counter()
            found = capacity(S[part], C[part], **kwargs)
            seconds[name] += time.perf_counter() - began
            closures[name] += found.closure.tolist()

    print(f"{len(s)} heads, r = {s.shape[-1]}, {options.threads} thread(s), {os.cpu_count()} cores")
    print(f"{'':28}{'ms/head':>10}{'ratio':>8}{'median':>9}{'5%':>9}{'min':>9}")
    rows = {}
    for name, P in closures.items():
        ratio = seconds["pymanopt"] / seconds[name]
        low, median = np.quantile(P, [0.05, 0.5])
        rows[name] = {
            "seconds_a_head": seconds[name] / len(s),
            "ratio": ratio,
            "median": median,
            "low": low,
        }
        print(
            f"{name:28}{1e3 * seconds[name] / len(s):10.1f}{ratio:8.1f}"
            f"{median:9.4f}{low:9.4f}{min(P):9.4f}"
        )
    report.write("capacity", {"heads": len(s), "d_head": s.shape[-1], "rows": rows})
    ratio = seconds["pymanopt"] / seconds["default"]
    better = np.median(closures["default"]) >= np.median(closures["pymanopt"])
    return 0 if ratio >= 10 and better else 1


if __name__ == "__main__":
    sys.exit(main())
