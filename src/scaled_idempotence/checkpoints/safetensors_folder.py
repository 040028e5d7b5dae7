"""Reader for a folder with ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import CheckpointError
from .reader import Hyperparameters

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# What safetensors calls its types, in bits.
BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "U8": 8}
FLOATS = {"F64", "F32", "F16", "BF16"}


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


class SafetensorsFolder:
    """A folder as ``save_pretrained`` writes it, its weights whole or in shards.

    Parameters
    ----------
    folder : Path
    where : str
        What messages call the checkpoint; the folder if empty.

    Raises
    ------
    CheckpointError
        If a file is missing, damaged, or outside the folder, or if the configuration lacks what
        fixes the shapes.
    """

    naming = "transformers"

    def __init__(self, folder: Path, where: str = ""):
        self.where = where or str(folder)
        self._folder = folder
        config = self._read_json(CONFIG)
        # Multimodal models nest the language model's configuration.
        config = config.get("text_config", config)
        self.architecture = str(self._setting(config, "model_type"))
        self.hyperparameters = self._read_hyperparameters(config)
        self._find_tensors()

    def _find_tensors(self) -> None:
        self._file_of: dict[str, str] = {}
        self._open: dict[str, safe_open] = {}
        for file in self._weight_files():
            for name in self._handle(file).keys():  # noqa: SIM118 (not a mapping)
                self._file_of[name] = file
        self.names = self._file_of.keys()

    def _read_json(self, name: str) -> dict:
        path = self._folder / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                f"{self.where} has no {name}; a model folder holds {CONFIG} and {WEIGHTS}, as "
                "save_pretrained of transformers writes them"
            ) from None
        except ValueError as error:
            raise CheckpointError(f"{path} is not valid JSON: {error}. Fetch it again") from error
        if not isinstance(content, dict):
            raise CheckpointError(f"{path} holds a {type(content).__name__}, expected an object")
        return content

    def _setting(self, config: dict, key: str, default=None):
        value = config.get(key, default)
        if value is None:
            raise CheckpointError(f"{self._folder / CONFIG} lacks {key!r}")
        return value

    def _read_hyperparameters(self, config: dict) -> Hyperparameters:
        def count(key: str, default: int | None = None) -> int:
            value = self._setting(config, key, default)
            if not isinstance(value, int) or value < 1:
                raise CheckpointError(
                    f"{self._folder / CONFIG} has {key} = {value!r}, expected a positive integer"
                )
            return value

        d_model, n_heads = count("hidden_size"), count("num_attention_heads")
        return Hyperparameters(
            d_model=d_model,
            d_head=count("head_dim", max(1, d_model // n_heads)),
            n_layers=count("num_hidden_layers"),
            n_heads=n_heads,
            n_value_heads=count("num_key_value_heads", n_heads),
        )

    def _weight_files(self) -> list[str]:
        if (self._folder / WEIGHTS).is_file():
            return [WEIGHTS]
        if not (self._folder / INDEX).is_file():
            raise CheckpointError(f"{self.where} holds neither {WEIGHTS} nor {INDEX}")
        shards = weight_map(self._read_json(INDEX), str(self._folder / INDEX))
        return sorted(set(shards.values()))

    def _handle(self, file: str) -> safe_open:
        if file not in self._open:
            path = self._folder / file
            try:
                self._open[file] = safe_open(path, framework="pt")
            except FileNotFoundError:
                raise CheckpointError(f"{INDEX} names {path}, which is missing") from None
            except SafetensorError as error:
                raise CheckpointError(
                    f"{path} ({path.stat().st_size:,} bytes) is cut short or damaged: {error}. "
                    "Fetch it again"
                ) from error
        return self._open[file]

    def _slice(self, name: str):
        return self._handle(self._file_of[name]).get_slice(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return self._slice(name).get_dtype()

    def n_bytes(self, name: str) -> int:
        return math.prod(self.shape(name)) * BITS.get(self.dtype(name), 8) // 8

    def _stored(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        """Read a tensor as it is stored."""
        if rows is None:
            return self._handle(self._file_of[name]).get_tensor(name)
        return self._slice(name)[slice(*rows)]

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        if self.dtype(name) not in FLOATS:
            raise CheckpointError(
                f"{name} of {self.where} is stored as {self.dtype(name)}; only "
                f"{', '.join(sorted(FLOATS))} can be read. Save the model unquantised first"
            )
        return self._stored(name, rows).to(torch.float64)
