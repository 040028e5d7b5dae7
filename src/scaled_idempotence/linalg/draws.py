"""Draws that are the same on every machine: their seeds, and matrices of the Haar measure."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def draw_seed(*identity: str | int) -> int:
    """Make a seed out of what a draw is for.

    Parameters
    ----------
    *identity : str or int
        Such as model, layer, head, kind and draw.

    Returns
    -------
    int
        Of 128 bits; the same on every machine, whatever else is drawn and in which order.
    """
    text = "\x1f".join(map(str, identity))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def start_seed(*key) -> int:
    """Make a seed for a generator of torch, which takes 63 bits, out of what it is for.

    Parameters
    ----------
    *key
        Told apart by their ``repr``.

    Returns
    -------
    int
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big") >> 1


def haar_of_normal(normal: Tensor) -> Tensor:
    """Make orthogonal matrices of the Haar measure out of independent normal entries.

    Parameters
    ----------
    normal : (..., r, r) Tensor

    Returns
    -------
    (..., r, r) Tensor
    """
    Q, R = torch.linalg.qr(normal)
    # Without this the law of Q depends on the sign convention of the QR routine.
    return Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
