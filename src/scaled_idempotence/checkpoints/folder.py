"""Reader for a folder with ``config.json`` and weights: safetensors or ``pytorch_model.bin``."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import CheckpointError
from .configuration import read_configuration
from .quantised.scales import read_scaled
from .reader import Reader

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
INDEX = ".index.json"

#: What safetensors calls the types that torch knows.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
BITS = {name: 8 * dtype.itemsize for dtype, name in DTYPES.items()}


def stored_type(tensor: Tensor) -> str:
    """Type of a tensor, as safetensors calls it."""
    return DTYPES.get(tensor.dtype, str(tensor.dtype))


class SafetensorsWeights:
    """One safetensors file; only what is asked for is read."""

    def __init__(self, path: Path):
        try:
            self._file = safe_open(path, framework="pt")
        except SafetensorError as error:
            raise _damaged(path, error) from error

    def keys(self) -> list[str]:
        return list(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return self._file.get_slice(name).get_dtype()

    def read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        if rows is None:
            return self._file.get_tensor(name)
        return self._file.get_slice(name)[rows[0] : rows[1]]


class PickleWeights:
    """One file of ``torch.save``, mapped into memory; only tensors are unpickled, no code."""

    def __init__(self, path: Path):
        try:
            content = self._load(path)
        except FileNotFoundError:
            raise
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{path} holds more than tensors, or is damaged; it is not loaded, since it could "
                "run code. Take the model's safetensors"
            ) from error
        except (RuntimeError, EOFError, OSError, ValueError) as error:
            raise _damaged(path, error) from error
        if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
            content = content["state_dict"]
        if not isinstance(content, dict):
            raise CheckpointError(
                f"{path} holds a {type(content).__name__}, expected a dictionary of tensors"
            )
        self._tensors = {
            name: value for name, value in content.items() if isinstance(value, Tensor)
        }

    @staticmethod
    def _load(path: Path):
        options = {"map_location": "cpu", "weights_only": True}
        with warnings.catch_warnings():
            # What torch warns of is what it then refuses, or reads well.
            warnings.simplefilter("ignore")
            try:
                return torch.load(path, mmap=True, **options)
            except RuntimeError as error:
                if "mmap can only be used" not in str(error):
                    raise
                return torch.load(path, **options)  # the format before torch 1.6

    def keys(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return stored_type(self._tensors[name])

    def read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        tensor = self._tensors[name]
        return tensor if rows is None else tensor[rows[0] : rows[1]]


#: One file of weights, open: names, shapes and types without reading, and a tensor or its rows.
WeightFile = SafetensorsWeights | PickleWeights


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} ({path.stat().st_size:,} bytes) is cut short or damaged: {error}. Fetch it again"
    )


def json_object(content: bytes, where: str) -> dict:
    """Read the content of a JSON file that must hold an object.

    Parameters
    ----------
    content : bytes
    where : str
        The file, for messages.

    Returns
    -------
    dict

    Raises
    ------
    CheckpointError
        If it is no JSON, or no object.
    """
    try:
        value = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON: {error}. Fetch it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} holds a {type(value).__name__}, expected an object")
    return value


def weight_map(index: dict, where: str) -> dict[str, str]:
    """Check which shard an index gives to each tensor.

    Parameters
    ----------
    index : dict
        Content of a ``*.index.json``.
    where : str
        The index, for messages.

    Returns
    -------
    dict of str to str
        The file's name for each tensor's name.

    Raises
    ------
    CheckpointError
        If there is no such map, or it names a shard that is not a plain file name.
    """
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{where} has no weight_map")
    shards = {name: str(file) for name, file in shards.items()}
    for file in sorted(set(shards.values())):
        # An index is a downloaded file: what it names must be a plain name beside it.
        if Path(file).name != file or "\\" in file or file in {"", ".", ".."}:
            raise CheckpointError(
                f"{where} names the shard {file!r}, which is not a file name in the same folder; "
                "this index is damaged or hostile"
            )
    return shards


class ModelFolder(Reader):
    """A folder as ``save_pretrained`` writes it, its weights whole or in shards.

    Parameters
    ----------
    folder : Path
    part : str, optional
        Stack or tower, where the architecture has several.
    where : str, optional
        What messages call the checkpoint; the folder if left out.

    Raises
    ------
    CheckpointError
        If a file is missing, damaged, or outside the folder, or if the configuration lacks what
        fixes the shapes.
    """

    def __init__(self, folder: Path, part: str | None = None, where: str | None = None):
        self.where = where or str(folder)
        self.folder = folder
        found = read_configuration(self._read_json(CONFIG), str(folder / CONFIG), part)
        self.architecture, self.part = found.architecture, found.part
        self.hyperparameters, self.quantisation = found.hyperparameters, found.quantisation
        self._find_tensors()

    def _find_tensors(self) -> None:
        self._file_of: dict[str, str] = {}
        self._open: dict[str, WeightFile] = {}
        for file in self._weight_files():
            for name in self._handle(file).keys():  # noqa: SIM118 (not a mapping)
                self._file_of[name] = file
        self.names = self._file_of.keys()

    def _read_json(self, name: str) -> dict:
        path = self.folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CheckpointError(
                f"{self.where} has no {name}; a model folder holds {CONFIG} and {SAFETENSORS}, as "
                "save_pretrained of transformers writes them"
            ) from None
        return json_object(content, str(path))

    def _weight_files(self) -> list[str]:
        # safetensors first: nothing in them can run.
        for single in (SAFETENSORS, PICKLE):
            self._index = single + INDEX
            if (self.folder / single).is_file():
                return [single]
            if (self.folder / self._index).is_file():
                where = str(self.folder / self._index)
                return sorted({*weight_map(self._read_json(self._index), where).values()})
        raise CheckpointError(
            f"{self.where} holds none of {SAFETENSORS}, {SAFETENSORS}{INDEX}, {PICKLE}, "
            f"{PICKLE}{INDEX}"
        )

    def _handle(self, file: str) -> WeightFile:
        if file not in self._open:
            # One file at a time: what was read of a mapped file stays in memory while it is open.
            self._open.clear()
            path = self.folder / file
            kind = SafetensorsWeights if file.endswith(".safetensors") else PickleWeights
            try:
                self._open[file] = kind(path)
            except FileNotFoundError:
                raise CheckpointError(f"{self._index} names {path}, which is missing") from None
        return self._open[file]

    def _of(self, name: str) -> WeightFile:
        return self._handle(self._file_of[name])

    def pretrained(self) -> tuple[str, dict[str, str | bool]]:
        return str(self.folder), {"local_files_only": True}

    def shape(self, name: str) -> tuple[int, ...]:
        return self._of(name).shape(name)

    def dtype(self, name: str) -> str:
        return self._of(name).dtype(name)

    def n_bytes(self, name: str) -> int:
        return math.prod(self.shape(name)) * BITS.get(self.dtype(name), 8) // 8

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        return read_scaled(self, self._stored, name, rows)

    def _stored(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        return self._of(name).read(name, rows)
