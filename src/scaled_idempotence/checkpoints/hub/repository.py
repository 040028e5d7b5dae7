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

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...compute.progress import byte_bar
from ...errors import CheckpointError, FetchError
from ...files import replacing
from ..folder import (
    BITS,
    CONFIG,
    INDEX,
    PICKLE,
    SAFETENSORS,
    ModelFolder,
    weight_map,
)
from ..quantised.scales import FP8, scale_of, scale_rows
from ..reader import TensorSlice
from ..registry import repo_folder
from . import client as hub_client
from .client import DEFAULT_REVISION, SHA, Commit, Unreachable, read_range

HEADERS = "headers.json"
FILES = "files.json"
SAFETENSORS_INDEX = SAFETENSORS + INDEX
PICKLE_INDEX = PICKLE + INDEX

#: Commits of revisions, as JSON by ``org/name@revision``, for processes that must see the weights
#: that the process which started them sees, also if the branch has moved meanwhile.
PINS_VARIABLE = "SCALED_IDEMPOTENCE_COMMITS"

# How much of a file is asked for in the hope that its header ends there. An index tells more: a
# tensor takes its name and, with type, shape and offsets, about as many bytes more as here.
FIRST_READ = 2**14
ENTRY_BYTES = 100
# The format's own limit, which keeps a hostile length from filling the memory.
LONGEST_HEADER = 100_000_000
HEADER_WORKERS = 8


@dataclass(frozen=True)
class Stored:
    """Where a tensor is.

    Parameters
    ----------
    file : str
    dtype : str
        As safetensors calls it.
    shape : tuple of int
    start, stop : int
        Bytes of the file, its header counted.
    file_size : int
        Bytes of the whole file.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    file_size: int

    def part(self, rows: tuple[int, int] | None) -> Stored:
        """The place of a range of rows."""
        if rows is None:
            return self
        first, last = rows
        if not self.shape or not 0 <= first < last <= self.shape[0]:
            raise ValueError(f"rows {rows} of a tensor of shape {self.shape}")
        stride = (self.stop - self.start) // self.shape[0]
        return replace(
            self,
            shape=(last - first, *self.shape[1:]),
            start=self.start + first * stride,
            stop=self.start + last * stride,
        )


class Range(NamedTuple):
    """Bytes ``[start, stop)`` of a file."""

    file: str
    start: int
    stop: int


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sort ranges, and make one of those that touch or overlap.

    Parameters
    ----------
    ranges : iterable of Range

    Returns
    -------
    list of Range

    Examples
    --------
    >>> join_ranges([Range("a", 8, 9), Range("a", 4, 6), Range("a", 0, 4)])
    [Range(file='a', start=0, stop=6), Range(file='a', start=8, stop=9)]
    """
    joined: list[Range] = []
    for one in sorted(ranges):
        if joined and joined[-1].file == one.file and one.start <= joined[-1].stop:
            joined[-1] = joined[-1]._replace(stop=max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return joined


def group_of(name: str) -> str:
    """Name the cache's file for a tensor: one a layer, so that a layer is brought at once.

    Parameters
    ----------
    name : str
        Of the tensor. It comes out of a downloaded file; of it only a number is used.

    Returns
    -------
    str

    Examples
    --------
    >>> group_of("model.layers.12.self_attn.v_proj.weight"), group_of("shared.weight")
    ('layer-00012', 'other')
    """
    number = re.search(r"(?:^|\.)([0-9]{1,5})\.", name)
    return f"layer-{int(number[1]):05d}" if number else "other"


def entry_name(part: TensorSlice) -> str:
    """Name of a tensor, or of a part of it, inside the cache's files."""
    return part.name if part.rows is None else f"{part.name}[{part.rows[0]}:{part.rows[1]}]"


def write_atomically(
    path: Path, content: bytes, check: Callable[[Path], object] | None = None
) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : Path
    content : bytes
    check : callable, optional
        Is given the written file before it takes its place, and raises if it is not good.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Weights behind a licence stay their user's own.
    with replacing(path, mode=0o600) as unfinished:
        unfinished.write_bytes(content)
        if check is not None:
            check(unfinished)


def pack(entries: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """Make a safetensors file of bytes that are of any type, known to torch or not.

    Parameters
    ----------
    entries : mapping
        Type as safetensors calls it, shape and bytes, by name.

    Returns
    -------
    bytes
        With the sha256 of its tensors in its metadata.
    """
    header: dict[str, dict] = {}
    position = 0
    body = bytearray()
    for name, (dtype, shape, content) in entries.items():
        end = position + len(content)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
        body += content
    header["__metadata__"] = {"sha256": hashlib.sha256(body).hexdigest()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + bytes(body)


def open_packed(path: Path) -> safe_open:
    """Open a file of `pack`.

    Parameters
    ----------
    path : Path

    Returns
    -------
    safe_open

    Raises
    ------
    CheckpointError
        If it is not what `pack` made.
    """
    try:
        handle = safe_open(path, framework="pt")
        promised = (handle.metadata() or {}).get("sha256")
        with path.open("rb") as file:
            file.seek(int.from_bytes(file.read(8), "little"), os.SEEK_CUR)
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if found != promised:
        raise CheckpointError(f"{path} is damaged: sha256 {found}, expected {promised}")
    return handle


def parse_header(text: bytes, file: str, size: int, where: str) -> dict[str, Stored]:
    """Read the header of a safetensors file.

    Parameters
    ----------
    text : bytes
        The header without the eight bytes of its length.
    file : str
    size : int
        Of the whole file in bytes.
    where : str
        The commit, for messages.

    Returns
    -------
    dict of str to Stored

    Raises
    ------
    CheckpointError
        If it is not a header, or not of a file of this size.
    """
    begin = 8 + len(text)
    tensors = {}
    try:
        header = json.loads(text)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, stop = map(int, entry["data_offsets"])
            shape = tuple(map(int, entry["shape"]))
            dtype = str(entry["dtype"])
            if not 0 <= start <= stop or min(shape, default=0) < 0:
                raise ValueError(f"{name} has shape {shape} and offsets {start}-{stop}")
            if dtype in BITS and math.prod(shape) * BITS[dtype] != 8 * (stop - start):
                raise ValueError(f"{name} is {dtype} of shape {shape} in {stop - start} bytes")
            tensors[name] = Stored(file, dtype, shape, begin + start, begin + stop, size)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"the header of {file} of {where} is damaged: {type(error).__name__}: {error}"
        ) from error
    end = max((place.stop for place in tensors.values()), default=begin)
    if end != size:
        raise CheckpointError(
            f"{file} of {where} has {size:,} bytes, but its header promises {end:,}; the upload is "
            "cut short or damaged: take another revision"
        )
    return tensors


def read_header(commit: Commit, file: str, guess: int = FIRST_READ) -> dict[str, Stored]:
    """Fetch and read the header of one file.

    Parameters
    ----------
    commit : Commit
    file : str
    guess : int
        Bytes to ask for first; the rest of a longer header is asked for then.

    Returns
    -------
    dict of str to Stored

    Raises
    ------
    CheckpointError, FetchError
        If it cannot be fetched, or is no header of this file.
    """
    first, size = read_range(commit, file, 0, guess)
    length = int.from_bytes(first[:8], "little")
    if len(first) < 8 or not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise CheckpointError(
            f"{file} of {commit.where} ({size:,} bytes) is not a safetensors file: its first bytes "
            f"are {first[:16]!r}"
        )
    if 8 + length > len(first):
        first += read_range(commit, file, len(first), 8 + length)[0]
    return parse_header(first[8 : 8 + length], file, size, commit.where)


def read_headers(commit: Commit) -> dict[str, Stored]:
    """Find every tensor of a commit.

    Parameters
    ----------
    commit : Commit

    Returns
    -------
    dict of str to Stored

    Raises
    ------
    CheckpointError
        If there are no safetensors, or index and shards do not fit together.
    """
    if SAFETENSORS in commit.files:
        return read_header(commit, SAFETENSORS)
    if SAFETENSORS_INDEX not in commit.files:
        raise CheckpointError(
            f"{commit.where} holds neither {SAFETENSORS} nor {SAFETENSORS_INDEX}. It holds "
            f"{', '.join(sorted(commit.files)[:10]) or 'nothing'}"
        )
    where = f"{SAFETENSORS_INDEX} of {commit.where}"
    file_of = weight_map(_read_json(commit, SAFETENSORS_INDEX), where)
    shards = sorted(set(file_of.values()))
    if absent := [file for file in shards if file not in commit.files]:
        raise CheckpointError(
            f"{where} names {', '.join(absent[:3])}, which the repository does not hold: the "
            "upload is incomplete; take another revision"
        )
    guesses = dict.fromkeys(shards, 0)
    for name, file in file_of.items():
        guesses[file] += len(name) + ENTRY_BYTES

    def read(file: str) -> dict[str, Stored]:
        return read_header(commit, file, 2 * ENTRY_BYTES + guesses[file])

    with ThreadPoolExecutor(HEADER_WORKERS) as pool:
        headers = dict(zip(shards, pool.map(read, shards), strict=True))
    if lost := [name for name, file in file_of.items() if name not in headers[file]]:
        raise CheckpointError(
            f"{where} puts {lost[0]} and {len(lost) - 1} other tensors in shards that do not hold "
            "them; take another revision"
        )
    return {name: headers[file][name] for name, file in file_of.items()}


def _read_json(commit: Commit, file: str) -> dict:
    content, _ = read_range(commit, file, 0, None)
    try:
        value = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{file} of {commit.where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{file} of {commit.where} holds a {type(value).__name__}, expected an object"
        )
    return value


class HubFolder(ModelFolder):
    """One commit of a repository, as far as it was read.

    Parameters
    ----------
    commit : Commit
    tensors : dict of str to Stored
        As `read_headers` gives them.
    folder : Path
        The commit's folder in the cache, with ``config.json``.
    part : str, optional
        Stack or tower, where the architecture has several.
    """

    def __init__(
        self, commit: Commit, tensors: dict[str, Stored], folder: Path, part: str | None = None
    ):
        self._commit = commit
        self._tensors = tensors
        self._file_sizes = {place.file: place.file_size for place in tensors.values()}
        self._groups: dict[str, safe_open | None] = {}
        super().__init__(folder, part, commit.where)

    def _find_tensors(self) -> None:
        self.names = self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> str:
        return self._tensors[name].dtype

    def n_bytes(self, name: str) -> int:
        return self._tensors[name].stop - self._tensors[name].start

    def _stored(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        part = TensorSlice(name, rows)
        self.prefetch([part])
        group = group_of(name)
        # One layer at a time: what was read of a mapped file stays in memory while it is open.
        self._groups = {group: self._groups[group]}
        return self._groups[group].get_tensor(entry_name(part))

    def prefetch(self, parts: Iterable[TensorSlice], progress: bool = True) -> None:
        """Bring what is not yet in the cache.

        Parameters
        ----------
        parts : iterable of TensorSlice
            Of one layer or of many; each layer is kept as soon as it is there.
        progress : bool
            Show a bar that counts bytes.
        """
        missing: dict[str, list[TensorSlice]] = {}
        for part in dict.fromkeys(self._with_scales(parts)):
            group = group_of(part.name)
            if not self._has(group, part):
                missing.setdefault(group, []).append(part)
        if not missing:
            return
        plans = {group: self._ranges(wanted) for group, wanted in missing.items()}
        total = sum(one.stop - one.start for plan in plans.values() for one in plan)
        with byte_bar(total, self.where, progress) as bar:
            for group, plan in plans.items():
                content = {one: self._read_range(one, bar.update) for one in plan}
                self._keep(group, missing[group], content)

    def _with_scales(self, parts: Iterable[TensorSlice]) -> Iterator[TensorSlice]:
        """Give also the scales without which fp8 weights have no values."""
        for part in parts:
            yield part
            scale = scale_of(part.name, self.names) if self.dtype(part.name) in FP8 else None
            if scale is not None:
                shapes = self.shape(part.name), self.shape(scale)
                yield TensorSlice(scale, scale_rows(*shapes, part.rows))

    def _place(self, part: TensorSlice) -> Stored:
        return self._tensors[part.name].part(part.rows)

    def _ranges(self, parts: Iterable[TensorSlice]) -> list[Range]:
        places = [self._place(part) for part in parts]
        return join_ranges(Range(place.file, place.start, place.stop) for place in places)

    def _read_range(self, one: Range, report: Callable[[int], object]) -> bytes:
        content, size = read_range(self._commit, *one, report=report)
        if size != self._file_sizes[one.file]:
            raise CheckpointError(
                f"{one.file} of {self.where} had {self._file_sizes[one.file]:,} bytes and now has "
                f"{size:,}: a commit does not change, so something between here and the hub is "
                "broken; nothing of it is used"
            )
        return content

    def _path(self, group: str) -> Path:
        return self._folder / f"{group}.safetensors"

    def _has(self, group: str, part: TensorSlice) -> bool:
        if group not in self._groups:
            try:
                self._groups[group] = open_packed(self._path(group))
            except FileNotFoundError:
                self._groups[group] = None
            except CheckpointError as error:
                # What was damaged on this disk is fetched again.
                warnings.warn(f"{error}. It is fetched again", stacklevel=2)
                self._groups[group] = None
        handle = self._groups[group]
        if handle is None or entry_name(part) not in handle.keys():  # noqa: SIM118
            return False
        found, place = handle.get_slice(entry_name(part)), self._place(part)
        return (found.get_dtype(), tuple(found.get_shape())) == (place.dtype, place.shape)

    def _keep(
        self, group: str, parts: Iterable[TensorSlice], content: Mapping[Range, bytes]
    ) -> None:
        """Put parts, cut out of the ranges that were read, to what the group already holds."""
        entries = self._entries(group)
        for part in parts:
            place = self._place(part)
            (source,) = [
                one
                for one in content
                if one.file == place.file and one.start <= place.start and place.stop <= one.stop
            ]
            cut = content[source][place.start - source.start : place.stop - source.start]
            if len(cut) != place.stop - place.start:
                raise FetchError(
                    f"{entry_name(part)} of {self.where} came in {len(cut):,} bytes, expected "
                    f"{place.stop - place.start:,}; it is not used. Try again"
                )
            entries[entry_name(part)] = (place.dtype, place.shape, cut)
        self._groups.pop(group, None)  # closed before its file is replaced
        write_atomically(self._path(group), pack(entries), open_packed)
        self._groups[group] = open_packed(self._path(group))

    def _entries(self, group: str) -> dict[str, tuple[str, Sequence[int], bytes]]:
        """What a group holds, as `pack` takes it."""
        if self._groups.get(group) is None:
            return {}
        with self._path(group).open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            body = file.read()
        return {
            name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()
            if name != "__metadata__"
        }


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
        if _is_bin_only(commit):
            files = _bin_files(commit)
            reader = ModelFolder(_download(commit, files), part, commit.where)
            write_atomically(folder / FILES, json.dumps(files).encode())
            return reader, commit.sha
        tensors = read_headers(commit)
    if not (folder / CONFIG).is_file():
        config = json.dumps(_read_json(commit, CONFIG), indent=1).encode()
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


def _is_bin_only(commit: Commit) -> bool:
    safetensors = {SAFETENSORS, SAFETENSORS_INDEX} & set(commit.files)
    return not safetensors and bool({PICKLE, PICKLE_INDEX} & set(commit.files))


def _bin_files(commit: Commit) -> list[str]:
    if PICKLE in commit.files:
        return [CONFIG, PICKLE]
    shards = weight_map(_read_json(commit, PICKLE_INDEX), f"{PICKLE_INDEX} of {commit.where}")
    return [CONFIG, PICKLE_INDEX, *sorted(set(shards.values()))]


def _download(commit: Commit, files: Sequence[str]) -> Path:
    """Bring whole files, of which no part can be read from afar, to the hub client's own cache."""
    with hub_client.explained(commit.repo, commit.sha, "the weights"):
        paths = [hf_hub_download(commit.repo, file, revision=commit.sha) for file in files]
    return Path(paths[0]).parent
