"""Reader for one commit on the hub, of which only the wanted byte ranges are fetched."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

from ...errors import CheckpointError, FetchError
from ...progress import byte_bar
from ..folder import ModelFolder
from ..quantised.scales import FP8, scale_of, scale_rows
from ..reader import TensorSlice
from .client import Commit, read_range
from .headers import Stored
from .packed import open_packed, pack, write_atomically


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

    def pretrained(self) -> tuple[str, dict[str, str | bool]]:
        return self._commit.repo, {"revision": self._commit.sha}

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
        handle = self._groups[group]
        assert handle is not None, f"{group} was brought just now"
        # One layer at a time: what was read of a mapped file stays in memory while it is open.
        self._groups = {group: handle}
        return handle.get_tensor(entry_name(part))

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
        return self.folder / f"{group}.safetensors"

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
