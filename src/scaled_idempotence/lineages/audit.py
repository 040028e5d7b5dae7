"""Checkpoints that hold the weights of another step: compared by content, named, left out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ..checkpoints.model import OVModel

Status = Literal["used", "duplicate", "impossible repeat"]


class Comparison(NamedTuple):
    """What a comparison says of one checkpoint.

    Attributes
    ----------
    status : {"used", "duplicate", "impossible repeat"}
    other : int
        Index of the checkpoint whose weights it has too; -1 if there is none.
    same, parts : int
        Parts (files or layers) that agree, of how many.
    """

    status: Status
    other: int = -1
    same: int = 0
    parts: int = 0

    def sentence(self, names: Sequence[str]) -> str:
        """Say it for people.

        Parameters
        ----------
        names : sequence of str
            Of all checkpoints.

        Returns
        -------
        str

        Examples
        --------
        >>> Comparison("impossible repeat", 2, 1, 3).sentence(["step0", "step1", "step9"])
        'impossible repeat of step9 (1 of 3 parts)'
        """
        if self.other < 0:
            return self.status
        share = "" if self.same == self.parts else f" ({self.same} of {self.parts} parts)"
        return f"{self.status} of {names[self.other]}{share}"


def compare_contents(
    contents: Sequence[Mapping[str, str]], positions: Sequence[int] | None = None
) -> list[Comparison]:
    """Find checkpoints that share weights with another one.

    Parameters
    ----------
    contents : sequence of mapping of str to str
        For each checkpoint, by ascending step, a hash for each part of it: a file or a layer. An
        empty one is compared with none.
    positions : sequence of int, optional
        Places of the checkpoints among all of the run; 0, 1, 2, ... if not given.

    Returns
    -------
    list of Comparison

    Notes
    -----
    No two steps of a training run share weights, with one exception: where the learning rate is
    still 0, neighbours are equal. So whatever shares a part with

    * the final checkpoint is an impossible repeat of it;
    * its direct neighbour, in every part, is a duplicate, of which the first is used;
    * any other is an impossible repeat, on both sides: nothing tells which of the two is right.

    Examples
    --------
    >>> first, second, last = {"w": "a"}, {"w": "b"}, {"w": "c"}
    >>> [v.status for v in compare_contents([first, first, second, last, last])]
    ['used', 'duplicate', 'used', 'impossible repeat', 'used']
    """
    positions = list(range(len(contents)) if positions is None else positions)
    hashes = [frozenset(content.values()) for content in contents]
    last = len(contents) - 1
    found = [Comparison("used") for _ in contents]

    def repeat(one: int, other: int) -> Comparison:
        return Comparison(
            "impossible repeat", other, len(hashes[one] & hashes[other]), len(hashes[one])
        )

    for one in range(last):
        if hashes[one] & hashes[last]:
            found[one] = repeat(one, last)
    for one in range(last):
        for other in range(one + 1, last):
            if "impossible repeat" in (found[one].status, found[other].status):
                continue
            if not hashes[one] & hashes[other]:
                continue
            run = set(range(positions[one], positions[other] + 1))
            known = {
                position for place, position in enumerate(positions) if hashes[place] == hashes[one]
            }
            if hashes[one] == hashes[other] and run <= known:
                found[other] = Comparison("duplicate", one, len(hashes[one]), len(hashes[one]))
            else:
                found[one], found[other] = repeat(one, other), repeat(other, one)
    return found


def ov_hashes(model: OVModel) -> dict[str, str]:
    """Hash the factors of every layer, as they were read.

    Parameters
    ----------
    model : OVModel

    Returns
    -------
    dict of str to str
        A sha256 a layer.
    """
    found = {}
    for layer in model:
        digest = hashlib.sha256()
        for factor in (layer.V, layer.O):
            digest.update(factor.contiguous().numpy().data)
        found[f"layer {layer.index}"] = digest.hexdigest()
    return found


def content_hash(parts: Mapping[str, str]) -> str:
    """Make one hash of the parts'.

    Parameters
    ----------
    parts : mapping of str to str

    Returns
    -------
    str
        16 hexadecimal digits; empty if there are no parts.
    """
    if not parts:
        return ""
    return hashlib.sha256("\n".join(sorted(parts.values())).encode()).hexdigest()[:16]
