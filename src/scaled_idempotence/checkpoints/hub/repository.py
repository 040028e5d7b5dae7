"""Checkpoints on the Hugging Face hub, of which only the wanted byte ranges are read.

What was read is kept in the cache folder, by repository and commit::

    hub/<org--name>/refs/<revision>          the commit that the revision was when last asked
    hub/<org--name>/<commit>/config.json
    hub/<org--name>/<commit>/headers.json    where each tensor is, out of the shards' headers
    hub/<org--name>/<commit>/files.json      instead of it, where there are .bin files only, which
                                             are whole in the cache of huggingface_hub
    hub/<org--name>/<commit>/layer-00012.safetensors   what was read of a layer, under its own
                                                       names and types, with its sha256

Each file is written whole or not at all, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ..folder import CONFIG, INDEX, PICKLE, SAFETENSORS, ModelFolder, weight_map
from ..registry import repo_folder
from . import client as hub_client
from .client import DEFAULT_REVISION, SHA, Commit, Unreachable
from .folder import HubFolder
from .headers import SAFETENSORS_INDEX, Stored, read_headers, read_json
from .packed import write_atomically

HEADERS = "headers.json"
FILES = "files.json"
PICKLE_INDEX = PICKLE + INDEX

#: Commits of revisions, as JSON by ``org/name@revision``, for processes that must see the weights
#: that the process which started them sees, also if the branch has moved meanwhile.
PINS_VARIABLE = "SCALED_IDEMPOTENCE_COMMITS"


def is_repo_id(source: str) -> bool:
    """Say whether a text can be ``org/name`` on the hub.

    Parameters
    ----------
    source : str

    Returns
    -------
    bool

    Examples
    --------
    >>> is_repo_id("Qwen/Qwen3-4B-Base"), is_repo_id("a/b/c"), is_repo_id("../weights")
    (True, False, False)
    """
    try:
        validate_repo_id(source)
    except HFValidationError:
        return False
    return source.count("/") == 1 and not source.startswith((".", "-", "~"))


def find_commit(repo: str, revision: str) -> Commit:
    """Find the commit that a revision is.

    Parameters
    ----------
    repo, revision : str
        A full commit that is in the cache is not asked for.

    Returns
    -------
    Commit
        Without its files where the hub was not asked.

    Warns
    -----
    UserWarning
        If the hub cannot be reached and the commit is the one that the revision was when last
        asked. With ``HF_HUB_OFFLINE`` this is what was asked for, and there is no warning.
    """
    revision = json.loads(os.environ.get(PINS_VARIABLE, "{}")).get(f"{repo}@{revision}", revision)
    if _is_known(repo, revision):
        return Commit(repo, revision)
    ref = repo_folder(repo) / "refs" / quote(revision, safe="")
    known = ref.read_text(encoding="ascii").strip() if ref.is_file() else ""
    if not _is_known(repo, known):
        known = ""
    try:
        commit = hub_client.resolve(repo, revision, retry_connecting=not known)
    except Unreachable:
        if not known:
            raise
        if not constants.is_offline_mode():
            warnings.warn(
                f"cannot ask {constants.ENDPOINT} which commit {revision} of {repo} is now; going "
                f"on with {known}, which it was when last asked",
                stacklevel=2,
            )
        return Commit(repo, known)
    if commit.sha != known:
        write_atomically(ref, commit.sha.encode())
    return commit


def _is_known(repo: str, sha: str) -> bool:
    """Say whether a commit can be opened without asking the hub."""
    folder = repo_folder(repo) / sha
    return bool(SHA.fullmatch(sha)) and any((folder / name).is_file() for name in (HEADERS, FILES))


def open_hub(
    repo: str, revision: str | None = None, part: str | None = None
) -> tuple[ModelFolder, str]:
    """Open a repository of the hub; only its configuration and headers are read.

    Parameters
    ----------
    repo : str
        ``org/name``.
    revision : str, optional
        Branch, tag or commit; ``main`` if not given.
    part : str, optional
        Stack or tower, where the architecture has several.

    Returns
    -------
    reader : ModelFolder
    sha : str
        The commit, to which everything that the reader ever reads is pinned.

    Raises
    ------
    CheckpointError
        If there is no such repository or revision, or what it holds is damaged.
    FetchError
        If the hub refuses, or cannot be reached and the cache does not have the commit.
    """
    commit = find_commit(repo, revision or DEFAULT_REVISION)
    folder = repo_folder(repo) / commit.sha
    if (folder / FILES).is_file():
        kept = json.loads((folder / FILES).read_text(encoding="utf-8"))
        return ModelFolder(_download(commit, kept), part, commit.where), commit.sha
    tensors = _kept_headers(folder)
    if tensors is None:
        if not commit.files:
            commit = hub_client.resolve(repo, commit.sha)
        if files := _bin_files(commit):
            reader = ModelFolder(_download(commit, files), part, commit.where)
            write_atomically(folder / FILES, json.dumps(files).encode())
            return reader, commit.sha
        tensors = read_headers(commit)
    if not (folder / CONFIG).is_file():
        config = json.dumps(read_json(commit, CONFIG), indent=1).encode()
        write_atomically(folder / CONFIG, config)
    reader = HubFolder(commit, tensors, folder, part)
    # Last: where it is, the rest is too.
    if not (folder / HEADERS).is_file():
        text = json.dumps({name: asdict(place) for name, place in tensors.items()}).encode()
        write_atomically(folder / HEADERS, text)
    return reader, commit.sha


def _kept_headers(folder: Path) -> dict[str, Stored] | None:
    path = folder / HEADERS
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: Stored(**(entry | {"shape": tuple(entry["shape"])}))
            for name, entry in kept.items()
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(f"{path} is damaged ({error}). It is fetched again", stacklevel=2)
        path.unlink()
        return None


def _bin_files(commit: Commit) -> list[str]:
    """Files to be brought whole, where there are no safetensors, of which parts can be read."""
    if {SAFETENSORS, SAFETENSORS_INDEX} & set(commit.files):
        return []
    if PICKLE in commit.files:
        return [CONFIG, PICKLE]
    if PICKLE_INDEX not in commit.files:
        return []
    shards = weight_map(read_json(commit, PICKLE_INDEX), f"{PICKLE_INDEX} of {commit.where}")
    return [CONFIG, PICKLE_INDEX, *sorted(set(shards.values()))]


def _download(commit: Commit, files: Sequence[str]) -> Path:
    """Bring whole files, of which no part can be read from afar, to the hub client's own cache."""
    with hub_client.explained(commit.repo, commit.sha, "the weights"):
        paths = [hf_hub_download(commit.repo, file, revision=commit.sha) for file in files]
    return Path(paths[0]).parent
