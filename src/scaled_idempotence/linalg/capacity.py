"""Capacity: how close to closure any orientation of a head's spectrum could come.

A head with transport core ``K = U_L diag(s) U_R^T`` and support ``D = diag(c)`` has closure

    P_D(K) = <K D K, K>^2 / (|K D K|^2 |K|^2)                                      (10)
           = (sum_i s_i^3 G_ii)^2 / (sum_ij s_i^2 s_j^2 G_ij^2  *  sum_i s_i^2),

with ``G = U_R^T D U_L``. As ``U_L`` and ``U_R`` range over the orthogonal matrices, ``G`` ranges
over all matrices whose singular values are ``c``, so the capacity

    Cap(s, D) = max over orthogonal U_L, U_R of P_D(U_L diag(s) U_R^T)             (23)

is a maximum over one ``r x r`` matrix. Every search gives a lower bound of it, never "the optimum".

Why this method
---------------
*Start.* ``P`` is a squared cosine that asks for ``G`` proportional to ``diag(1/s)``, and every
pairing of cosines with singular values (a diagonal ``G``) is stationary. The sorted pairing, large
``s`` with small ``c``, spoils the largest ``s`` with cosines that are far too small. The *shifted*
pairing leaves the k smallest cosines to the k smallest singular values, where they cost nothing,
sorts the rest, and takes the best k (`shifted_pairing`). On the 270 heads of SmolLM2-135M it
reaches a median of 0.943 with no search at all (sorted: 0.747).

*Ascent.* At a diagonal ``G`` the Hessian of ``log P`` falls apart into 2 x 2 blocks, one for each
pair of rows and columns, whose eigenvectors turn the two sides with or against each other. L-BFGS
with the absolute values of that exact diagonal as its initial matrix needs about a tenth of the
steps of L-BFGS without it. From a pairing the search keeps ``U_L = U_R`` (``K`` and ``G``
symmetric), at half the cost of a step: searches that are free to leave this set end on it.

*Steps* use matrix products only (a Taylor exponential); one SVD at the end puts the result on the
orbit to rounding. Batched LU, which a Cayley step asks for, returns wrong numbers for large r on
several threads (https://github.com/pytorch/pytorch/issues/142815).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from .ascent import ascend, padded
from .draws import haar_of_normal, start_seed
from .orientations import (
    check_spectrum,
    closure_of_orientation,
    paired_gram,
    shifted_pairing,
    sorted_pairing,
)

_PAIRINGS = ("shifted", "sorted")  # starts with U_L = U_R, which their search keeps
_ORTHOGONAL = 1e-8  # rounding allowed on an orientation that is passed in
_KICK = 0.3  # spectral scale of the turn that leaves a stationary pairing
_CHUNK = 2**17  # matrix elements advanced together: the working set stays in the cache


@dataclass(frozen=True)
class Capacity:
    """Best orientations found, with what is needed to judge the search.

    Attributes
    ----------
    closure : (...) Tensor
        Closure of the best construction, a lower bound of the capacity (23). NaN where ``s`` or
        ``c`` is all zero.
    U_L, U_R : (..., r, r) Tensor
        Its orthogonal factors, ``K = U_L diag(s) U_R^T``; identities where the closure is NaN.
    starts : tuple of str
        Name of each start, in the order of the last axis below.
    best_start : (...) Tensor of int64
        Index in `starts` of the search that won.
    start_closure, final_closure : (..., n_starts) Tensor
        Closure before and after each search.
    n_steps : (..., n_starts) Tensor of int64
        Steps that each search took.
    converged : (..., n_starts) Tensor of bool
        Whether it stopped for lack of progress rather than of steps.
    """

    closure: Tensor
    U_L: Tensor
    U_R: Tensor
    starts: tuple[str, ...]
    best_start: Tensor
    start_closure: Tensor
    final_closure: Tensor
    n_steps: Tensor
    converged: Tensor

    @property
    def n_starts(self) -> int:
        """Number of searches a head."""
        return len(self.starts)


def capacity(
    s,
    c,
    *,
    trained: tuple[Tensor, Tensor] | None = None,
    n_starts: int = 1,
    max_steps: int = 100,
    tol: float = 1e-4,
    seed: int | Sequence[int] = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Capacity:
    """Search for the orientation of a spectrum that comes closest to closure.

    Parameters
    ----------
    s : (..., r) array_like
        Singular values of the transport core, in any order.
    c : (..., r) array_like
        Cosines of the principal angles, in ``[0, 1]``, in any order.
    trained : pair of (..., r, r) Tensor, optional
        ``(U_L, U_R)`` of the trained core; adds one start, named "trained", in front of the others.
    n_starts : int
        Number of other starts: "shifted" pairing, "sorted" pairing, then "haar" draws. The starts
        of ``n`` are a prefix of those of ``n + 1``, so more starts never give less. One is nearly
        enough: on SmolLM2-135M the second and third raise the mean by 2e-4.
    max_steps : int
        Steps allowed to each search. 0 returns the best start.
    tol : float
        A search stops once ten steps raise ``log P`` by less than this.
    seed : int or sequence of int
        One for all heads or one a head (leading dimensions flattened). A head's starts depend on
        its own seed alone, and its result not on the other heads of the batch.
    progress : callable, optional
        Called as ``progress(done, total)``, in searches, whenever some have finished.

    Returns
    -------
    Capacity
        Orientations orthogonal to rounding; `closure` is computed from them, not from the search.

    Raises
    ------
    ValueError
        For shapes that do not agree, negative or non-finite values, cosines above 1, a `trained`
        that is not orthogonal, or counts out of range.

    See Also
    --------
    closure_of_orientation : recomputes the closure of what is returned.
    shifted_pairing : the construction that a reader can redo by hand.

    References
    ----------
    Feng and Li (2026), arXiv:2609.01129, equations (10), (23) and (24).

    Examples
    --------
    >>> import torch
    >>> found = capacity(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.6, 0.3, 0.2]))
    >>> round(float(found.closure), 6)  # c is proportional to 1/s: closure is exact
    1.0
    """
    s, c = check_spectrum(s, c)
    batch, r = s.shape[:-1], s.shape[-1]
    if n_starts < 0 or n_starts + (trained is not None) < 1:
        raise ValueError(f"n_starts is {n_starts}: ask for at least 1, or pass `trained`")
    if max_steps < 0:
        raise ValueError(f"max_steps is {max_steps}: it counts steps, so pass 0 or more")
    s, c = s.reshape(-1, r), c.reshape(-1, r)
    seeds = _seeds(seed, len(s))
    if trained is not None:
        U_L, U_R = (
            _orthogonal(U, (*batch, r, r), f"trained[{k}]").reshape(-1, r, r)
            for k, U in enumerate(trained)
        )
        trained = U_L, U_R
    names = _PAIRINGS[:n_starts] + ("haar",) * (n_starts - 2)
    if trained is not None:
        names = ("trained", *names)
    defined = (s.amax(-1) > 0) & (c.amax(-1) > 0)
    s, c = s / s.amax(-1, keepdim=True), c / c.amax(-1, keepdim=True)  # P ignores both scales

    eye = torch.eye(r, dtype=s.dtype)
    best_L, best_R = eye.repeat(len(s), 1, 1), eye.repeat(len(s), 1, 1)
    best = torch.full((len(s),), math.nan, dtype=s.dtype)
    best_start = torch.zeros(len(s), dtype=torch.int64)
    start_closure = torch.full((len(s), len(names)), math.nan, dtype=s.dtype)
    final_closure = start_closure.clone()
    n_steps = torch.zeros(len(s), len(names), dtype=torch.int64)
    converged = torch.zeros(len(s), len(names), dtype=torch.bool)

    def run(chunk):
        given = [trained and (trained[0][h], trained[1][h]) for h, _ in chunk]
        # Numbered past the trained one, a start is the same with and without a trained orientation.
        starts = [
            _start(names[k], s[h], c[h], U, seeds[h], k - len(names) + n_starts)
            for (h, k), U in zip(chunk, given, strict=True)
        ]
        index = [h for h, _ in chunk]
        symmetric = names[chunk[0][1]] in _PAIRINGS
        return chunk, _search(s[index], c[index], starts, symmetric, max_steps, tol)

    jobs = [(h, k) for h in defined.nonzero()[:, 0].tolist() for k in range(len(names))]
    done = 0
    # closing(): an interrupt must give torch its threads back at once.
    with closing(_in_parallel(run, _chunks(jobs, names, padded(r)))) as finished:
        for chunk, results in finished:
            for (h, k), result in zip(chunk, results, strict=True):
                P, U_L, U_R, start_closure[h, k], n_steps[h, k], converged[h, k] = result
                final_closure[h, k] = P
                if best[h].isnan() or best[h] < P:
                    best[h], best_start[h], best_L[h], best_R[h] = P, k, U_L, U_R
            done += len(chunk)
            if progress is not None:
                progress(done, len(jobs))
    return Capacity(
        closure=best.reshape(batch),
        U_L=best_L.reshape(*batch, r, r),
        U_R=best_R.reshape(*batch, r, r),
        starts=names,
        best_start=best_start.reshape(batch),
        start_closure=start_closure.reshape(*batch, len(names)),
        final_closure=final_closure.reshape(*batch, len(names)),
        n_steps=n_steps.reshape(*batch, len(names)),
        converged=converged.reshape(*batch, len(names)),
    )


def _orthogonal(U, shape: tuple[int, ...], name: str) -> Tensor:
    """Checked float64 copy of an orthogonal factor."""
    U = torch.as_tensor(U).detach().to("cpu", torch.float64)
    if U.shape != shape:
        raise ValueError(f"{name} has shape {tuple(U.shape)}, but s asks for {tuple(shape)}")
    error = (U.mT @ U - torch.eye(shape[-1], dtype=U.dtype)).abs().amax() if U.numel() else 0.0
    if not error <= _ORTHOGONAL:
        raise ValueError(
            f"{name} is {float(error):.1e} from orthogonal, {_ORTHOGONAL:.0e} is allowed: pass U "
            "and V (not V^T) of the SVD of K in float64"
        )
    return U


def _seeds(seed, n: int) -> list[int]:
    if isinstance(seed, int):
        return [seed] * n
    seeds = [int(x) for x in seed]
    if len(seeds) != n:
        raise ValueError(f"got {len(seeds)} seeds for {n} heads: pass one integer, or one a head")
    return seeds


def _start(name, s, c, trained, seed, k):
    """Orientation that a start stands for, and the one that its search sets out from."""
    r = len(s)
    generator = torch.Generator().manual_seed(start_seed(seed, name, k))
    if name == "trained":
        return trained, trained
    if name == "haar":
        left, right = (torch.randn(r, r, generator=generator, dtype=s.dtype) for _ in range(2))
        U = haar_of_normal(left), haar_of_normal(right)
        return U, U
    # Pairings are stationary: a small turn of either side lets the ascent begin.
    U_L, U_R = (shifted_pairing if name == "shifted" else sorted_pairing)(s, c)
    X = torch.randn(r, r, generator=generator, dtype=s.dtype) * (_KICK / math.sqrt(8 * r))
    turn = torch.matrix_exp(X - X.mT)
    return (U_L, U_R), (U_L @ turn, U_R @ turn)


def _chunks(jobs: list, names: tuple[str, ...], r: int) -> list[list]:
    """Jobs (head, start) in groups that are advanced together, all symmetric or all general."""
    size = min(max(1, _CHUNK // r**2), max(1, math.ceil(len(jobs) / torch.get_num_threads())))
    chunks = []
    for kind in (True, False):
        group = [job for job in jobs if (names[job[1]] in _PAIRINGS) == kind]
        chunks += [group[i : i + size] for i in range(0, len(group), size)]
    return chunks


def _in_parallel(function, items: list):
    """Yield ``function(item)`` in order, on as many workers as torch has threads, one thread each.

    Threads inside a small matrix product mostly wait for one another, above all on a busy machine,
    and change its rounding. Workers on separate chunks do neither.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(1)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _search(s, c, starts, symmetric, max_steps, tol) -> list[tuple]:
    """One search a start: ``P, U_L, U_R``, closure of the start, steps, whether it converged."""
    G = torch.stack([paired_gram(x, *kicked) for x, (_, kicked) in zip(c, starts, strict=True)])
    G, n_steps, converged = ascend(s, G, symmetric, max_steps, tol)
    results = []
    for j, (before, _) in enumerate(starts):
        after = _factor(G[j], c[j])
        P_before, P_after = (closure_of_orientation(s[j], c[j], *U) for U in (before, after))
        # A kick can cost more than a short search regains: keep the better end.
        P, U = (P_before, before) if P_before >= P_after else (P_after, after)
        results.append((P, *U, P_before, n_steps[j], converged[j]))
    return results


def _factor(G: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Orthogonal ``U_L, U_R`` whose ``U_R^T diag(c) U_L`` is nearest to ``G`` (r, r)."""
    X, _, Yh = torch.linalg.svd(G)
    place = c.argsort(dim=-1, descending=True, stable=True).argsort()
    return Yh[place], X.mT[place]
