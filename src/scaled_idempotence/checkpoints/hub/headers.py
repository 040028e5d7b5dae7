"""Headers of safetensors files on the hub: where in which file each tensor is."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ...errors import CheckpointError
from ..folder import BITS, INDEX, SAFETENSORS, json_object, weight_map
from .client import Commit, read_range

SAFETENSORS_INDEX = SAFETENSORS + INDEX

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
        By tensor.

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
        By tensor; of sharded weights each is in the shard that the index says.

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
    file_of = weight_map(read_json(commit, SAFETENSORS_INDEX), where)
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


def read_json(commit: Commit, file: str) -> dict:
    """Fetch a JSON file of a commit.

    Parameters
    ----------
    commit : Commit
    file : str

    Returns
    -------
    dict

    Raises
    ------
    CheckpointError, FetchError
        If it cannot be fetched, or holds no JSON object.
    """
    return json_object(read_range(commit, file, 0, None)[0], f"{file} of {commit.where}")
