"""Public lineages: which revisions are steps, which of them to take, and which not to trust."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import constants

from ..checkpoints import registry
from ..checkpoints.hub import client as hub_client
from ..checkpoints.hub.client import DEFAULT_REVISION, Unreachable
from ..checkpoints.hub.packed import write_atomically
from ..errors import CheckpointError
from .audit import compare_contents
from .series import Checkpoint, Left, Lineage, spread

#: Checkpoints that a public lineage is followed over, as in the paper.
DEFAULT_CHECKPOINTS = 4
#: How many neighbours may be tried in place of one that is not what it says.
SUBSTITUTES = 3


def steps_of(repo: str) -> list[Checkpoint]:
    """Find every checkpoint of a public lineage.

    Parameters
    ----------
    repo : str
        ``org/name``, or the short name of a model of the paper.

    Returns
    -------
    list of Checkpoint
        By ascending step, none of them looked at yet.

    Raises
    ------
    CheckpointError
        If the repository is in no known lineage, or has no revision that fits its pattern.
    FetchError
        If the hub cannot be asked and the cache does not have the list.
    """
    repo = registry.MODELS[repo].repo if repo in registry.MODELS else repo
    lineage = registry.lineage_of(repo)
    if lineage is None:
        known = "; ".join(", ".join(entry.repos) for entry in registry.LINEAGES)
        raise CheckpointError(
            f"{repo} is in no known lineage. Known are {known}. Pass the checkpoints of another "
            "one as a mapping of steps to models"
        )
    if lineage.repo_steps:
        steps = [(step, name, "") for step, name in lineage.repo_steps]
    else:
        steps = [(step, repo, name) for step, name in lineage.order(_revisions(repo))]
    if not steps:
        raise CheckpointError(
            f"no revision of {repo} is a step: expected {lineage.revisions}. See "
            f"{constants.ENDPOINT}/{repo}/tree/main"
        )
    return [
        Checkpoint(step, source, revision, position=position)
        for position, (step, source, revision) in enumerate(steps)
    ]


def public_lineage(repo: str, checkpoints: int | Sequence[int] = DEFAULT_CHECKPOINTS) -> Lineage:
    """Choose checkpoints of a public lineage; none of their weights is downloaded for that.

    Parameters
    ----------
    repo : str
        ``org/name``, or the short name of a model of the paper.
    checkpoints : int or sequence of int
        How many, spread over the logarithm of the step from the first to the last; or which steps.

    Returns
    -------
    Lineage
        What the hub says of the contents of files was compared: a checkpoint that shares a file
        with another one is in `left_out`, and a neighbour has taken its place where there is one.

    Raises
    ------
    CheckpointError, FetchError
        As `steps_of`; also for a step that the lineage does not have.
    """
    every = steps_of(repo)
    if isinstance(checkpoints, int):
        choices = spread([one.step for one in every], checkpoints)
    else:
        place = {one.step: n for n, one in enumerate(every)}
        if unknown := [step for step in checkpoints if step not in place]:
            raise CheckpointError(
                f"{repo} has no step {unknown[0]}; it has {len(every)} from {every[0].step} to "
                f"{every[-1].step}, such as {every[len(every) // 2].step}"
            )
        choices = [[place[step]] for step in sorted(set(checkpoints))]
    known: dict[int, Checkpoint] = {}
    tries = [0] * len(choices)
    while True:
        tried = {places[n] for places, n in zip(choices, tries, strict=True)} | set(known)
        for n in sorted(tried - set(known)):
            known[n] = _pinned(every[n])
        statuses = _statuses(known)
        # The place of a checkpoint that is left out goes to the nearest one not yet looked at.
        moved = False
        for number, places in enumerate(choices):
            current = places[tries[number]]
            if statuses[current] == "used" or tries[number] >= SUBSTITUTES:
                continue
            following = [n for n in range(tries[number] + 1, len(places)) if places[n] not in known]
            if following:
                tries[number], moved = following[0], True
        if not moved:
            break
    wanted = {places[n] for places, n in zip(choices, tries, strict=True)}
    name = registry.short_name(str(every[-1].source))
    return Lineage(
        name,
        tuple(known[n] for n in sorted(known) if statuses[n] == "used" and n in wanted),
        tuple(Left(known[n], statuses[n]) for n in sorted(known) if statuses[n] != "used"),
    )


def _statuses(known: dict[int, Checkpoint]) -> dict[int, str]:
    order = sorted(known)
    verdicts = compare_contents([known[n].files for n in order], order)
    names = [known[n].name for n in order]
    return {n: verdict.sentence(names) for n, verdict in zip(order, verdicts, strict=True)}


def weight_hashes(files: Sequence[str], sha256: dict[str, str]) -> dict[str, str]:
    """Hashes of the files that `open_model` would read the weights from.

    Parameters
    ----------
    files : sequence of str
    sha256 : dict of str to str

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> weight_hashes(
    ...     ["model.safetensors", "pytorch_model.bin"],
    ...     {"model.safetensors": "1", "pytorch_model.bin": "2"},
    ... )
    {'model.safetensors': '1'}
    """
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        names = [name for name in files if name.startswith(stem) and name.endswith(ending)]
        if names:
            return {name: sha256[name] for name in names if name in sha256}
    return {}


def _pinned(checkpoint: Checkpoint) -> Checkpoint:
    """Ask for a checkpoint's commit and for the hashes of its weight files."""
    repo, revision = str(checkpoint.source), checkpoint.revision or DEFAULT_REVISION
    path = registry.repo_folder(repo) / "lineage" / f"{quote(revision, safe='')}.json"
    try:
        commit = hub_client.resolve(repo, revision, hashes=True)
        kept = {"sha": commit.sha, "files": weight_hashes(commit.files, dict(commit.sha256))}
        _keep(path, kept)
    except Unreachable:
        kept = _kept(path)
        if kept is None:
            raise
    return replace(checkpoint, commit=kept["sha"], files=kept["files"])


def _revisions(repo: str) -> list[str]:
    path = registry.repo_folder(repo) / "lineage" / ".revisions.json"
    try:
        names = hub_client.list_revisions(repo)
    except Unreachable:
        names = _kept(path)
        if names is None:
            raise
        if not constants.is_offline_mode():
            warnings.warn(
                f"cannot ask {constants.ENDPOINT} for the revisions of {repo}; going on with "
                "those that it had when last asked",
                stacklevel=2,
            )
        return names
    _keep(path, names)
    return names


def _keep(path: Path, content: object) -> None:
    write_atomically(path, json.dumps(content).encode())


def _kept(path: Path):
    with suppress(FileNotFoundError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
