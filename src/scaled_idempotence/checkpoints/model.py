"""`open_model`: any model as an iterable of its layers' OV factors."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..errors import CheckpointError
from ..linalg.factors import topology, value_head_index
from .assembly import assemble, expected_shapes, wanted
from .finding import assume_layout, find_layout, rows_of
from .layouts import POST_LN
from .origin import Origin
from .quantised.scales import check_stored_type, explain_missing, scale_of
from .reader import Reader, TensorSlice
from .schema import Layout

NORMS = ("raw", "folded")


@dataclass(frozen=True)
class LayerFactors:
    """Factors of one layer.

    Attributes
    ----------
    index : int
        The layer's number.
    O : (H, d, r) Tensor
        Output factors, one a query head, float64.
    V : (G, d, r) Tensor
        Value factors, one a value head, float64.
    value_head : (H,) Tensor of int64
        ``g(h)``: query head ``h`` is ``T_h = O[h] V[value_head[h]]^T`` (3).
    """

    index: int
    O: Tensor = field(repr=False)
    V: Tensor = field(repr=False)
    value_head: Tensor


class OVModel:
    """A checkpoint seen as the OV factors of its attention heads, one layer in memory at a time.

    Make one with `open_model`. It is a sequence of `LayerFactors`. Where every layer has OV
    operators, a layer's position is its number; models that mix attention with other layers skip
    those, and `layers` has the numbers.

    Attributes
    ----------
    name : str
        Short name, used in tables and as a folder's name.
    norm : {"raw", "folded"}
    reader : Reader
        Of the checkpoint.
    hyperparameters : Hyperparameters
        What the reader found; the numbers that follow are out of them.
    d_model, d_head : int
        Width ``d`` and head dimension ``r``.
    n_layers, n_heads, n_value_heads : int
        Layers that have OV operators; query heads ``H`` and value heads ``G`` of a layer.
    layers : tuple of int
        The model's own numbers of those layers.
    part : str
        The stack or tower that is read, where the architecture has several; else empty.
    layout : Layout
        The row of the table that it follows.
    prefix : str
        What stands before the row's names of tensors in this checkpoint.
    topology : {"MHA", "GQA", "MQA"}
    architecture : str
        As the checkpoint calls it.
    source : str
        The file or folder that is read.
    weights_id : str
        What identifies the weights: a sha256 for bundled models, a commit for models on the hub,
        sizes and times for other files, and for a model in memory its content, hashed at every
        access since it may be in training.
    license : str
        Licence of a bundled model's weights, else empty.
    revision : str
        Revision of a model on the hub, if it is not the default one; else empty.
    pin : dict of str to str
        The commit that a revision on the hub was at opening, by ``org/name@revision``.
    norm_remark : str
        What folding does not do for this architecture; empty where there is nothing to say.
    remark : str
        What a reader should know of the operators, and of layers that are left out.
    """

    def __init__(
        self,
        name: str,
        reader: Reader,
        norm: str,
        weights_id: str | Callable[[], str] = "",
        license: str = "",
        revision: str = "",
        origin: Origin | None = None,
    ):
        check_norm(norm)
        self.reader = reader
        self.name = name
        self.norm = norm
        self.source = reader.where
        self._weights_id = weights_id
        self.license = license
        self.revision = revision
        self._origin = origin
        # Readers keep one file open and may be asked from several threads.
        self._lock = threading.Lock()
        self.architecture = reader.architecture
        self.part = reader.part
        h = self.hyperparameters = reader.hyperparameters
        self.layers = h.layers
        self.d_model, self.d_head = h.d_model, h.d_head
        self.n_layers, self.n_heads = len(h.layers), h.n_heads
        self.n_value_heads = h.n_value_heads
        try:
            self._value_head = value_head_index(self.n_heads, self.n_value_heads)
        except ValueError as error:
            raise CheckpointError(f"{self.source}: {error}") from None
        self.topology = topology(self.n_heads, self.n_value_heads)
        self.layout, self.prefix = self._find_layout()
        self.norm_remark = self.layout.norm_remark if h.pre_norm else POST_LN
        self.remark = "; ".join(filter(None, (self.layout.remark, h.remark)))
        for layer in self.layers:
            self._check_layer(layer)

    def _find_layout(self) -> tuple[Layout, str]:
        reader = self.reader
        if not rows_of(reader.naming, reader.architecture) and (found := assume_layout(reader)):
            layout, prefix = found
            if self.norm == "folded":
                raise CheckpointError(
                    f"{reader.where} has the architecture {reader.architecture!r}, which is not in "
                    "the table of layouts: its tensors tell where values and outputs are, but not "
                    "which norms to fold. Open it with norm='raw', or add a row to "
                    "scaled_idempotence/checkpoints/layouts.py"
                )
            warnings.warn(
                f"{reader.where} has the architecture {reader.architecture!r}, which is not in the "
                f"table of layouts. Its tensors fit that of {layout.family}, which is assumed: "
                f"values ({layout.value.title}) in {prefix}{layout.value.key}, outputs in "
                f"{prefix}{layout.output.weight}",
                UserWarning,
                stacklevel=4,
            )
            return layout, prefix
        return find_layout(reader)

    def __repr__(self) -> str:
        return (
            f"<OVModel {self.label}: {self.topology}, {self.n_layers} layers, "
            f"{self.n_heads}/{self.n_value_heads} heads, r={self.d_head}, d={self.d_model}>"
        )

    @property
    def origin(self) -> Origin:
        """What another process needs to open this model.

        Raises
        ------
        CheckpointError
            If the model is only in the memory of this process.
        """
        if self._origin is None:
            raise CheckpointError(
                f"{self.source} is only in the memory of this process, so no other process can "
                "read its layers: save it with save_pretrained and open the folder, or use threads"
            )
        return replace(self._origin, norm=self.norm, weights_id=self.weights_id)

    @property
    def pin(self) -> dict[str, str]:
        where = self._origin
        if where is None or where.commit is None:
            return {}
        return {f"{where.source}@{where.revision}": where.commit}

    @property
    def weights_id(self) -> str:
        return self._weights_id if isinstance(self._weights_id, str) else self._weights_id()

    @property
    def label(self) -> str:
        """Name of the model's results: its name, with revision and norm unless the default ones."""
        # It is a folder's name, and a revision can have slashes.
        safe = re.sub(r"[^\w.+-]+", "--", self.revision)
        revision = f"@{safe}" if self.revision else ""
        return self.name + revision + ("" if self.norm == "raw" else f"-{self.norm}")

    @property
    def description(self) -> str:
        """One sentence in Markdown that says what a page was made for."""
        sharing = {
            "MHA": f"{self.n_heads} heads",
            "GQA": f"{self.n_heads} query heads on {self.n_value_heads} value heads",
            "MQA": f"{self.n_heads} query heads on one value head",
        }[self.topology]
        norm = {"raw": "the stored weights", "folded": "weights with the norms' gains folded in"}
        remark = f" ({self.norm_remark})" if self.norm == "folded" and self.norm_remark else ""
        return (
            f"This page was made for **{self.name}**: {self.topology}, {self.n_layers} layers of "
            f"{sharing}, head dimension $r = {self.d_head}$, width $d = {self.d_model}$, from "
            f"{norm[self.norm]}{remark}."
        )

    def __len__(self) -> int:
        return self.n_layers

    def __iter__(self) -> Iterator[LayerFactors]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> LayerFactors:
        if not 0 <= position < len(self):
            raise IndexError(f"layer {position} of {self.name}, which has layers 0-{len(self) - 1}")
        layer = self.layers[position]
        with self._lock:
            # Whoever goes through the layers has a bar of their own.
            self.fetch([position], progress=False)
            parts = [self.reader.read(name, rows) for name, rows in self.slices([position])]
        O, V = assemble(self.layout, parts, self.hyperparameters, layer, self.norm)
        return LayerFactors(layer, O, V, self._value_head)

    def fetch(self, positions: Iterable[int] | None = None, progress: bool = True) -> None:
        """Bring what a survey reads to the cache; local files have nothing to bring.

        Parameters
        ----------
        positions : iterable of int, optional
            Of the layers in this sequence; all if not given.
        progress : bool
            Show a bar that counts bytes.
        """
        self.reader.prefetch(self.slices(positions), progress)

    def slices(self, positions: Iterable[int] | None = None) -> list[TensorSlice]:
        """Tensors, or parts of them, that a survey reads of some layers or of all."""
        h, norm = self.hyperparameters, self.norm
        return [
            one
            for position in (range(len(self)) if positions is None else positions)
            for one in wanted(self.layout, self.prefix, h, self.layers[position], norm)
        ]

    def sizes(self) -> tuple[int, int]:
        """Bytes that a survey reads, and bytes of all tensors of the checkpoint."""
        read = sum(self._slice_bytes(part) for part in self.slices())
        return read, sum(self.reader.n_bytes(name) for name in self.reader.names)

    def _slice_bytes(self, part: TensorSlice) -> int:
        read = self.reader.n_bytes(part.name)
        if part.rows is not None:
            first, last = part.rows
            read = read * (last - first) // self.reader.shape(part.name)[0]
        scale = scale_of(part.name, self.reader.names)
        return read + (self.reader.n_bytes(scale) if scale else 0)

    def dtypes(self) -> list[str]:
        """Stored types of the tensors that a survey reads."""
        return sorted({self.reader.dtype(name) for name, _ in self.slices()})

    def _check_layer(self, layer: int) -> None:
        """Compare stored with promised shapes: a wrong split gives numbers and no error."""
        reader, h = self.reader, self.hyperparameters
        for template, (shape, meaning) in expected_shapes(self.layout, h, layer, self.norm).items():
            name = h.named(self.prefix + template, layer)
            if name not in reader.names:
                raise CheckpointError(
                    f"{self.source} lacks {name}, one of its {h.n_layers} layers"
                    + explain_missing(name, reader.names, reader.quantisation)
                )
            if reader.naming == "transformers":
                check_stored_type(reader, name)
            got = reader.shape(name)
            if len(got) != len(shape) or any(
                want not in (None, have) for have, want in zip(got, shape, strict=True)
            ):
                raise CheckpointError(
                    f"{name} of {self.source} has shape {got}, but the configuration promises "
                    f"{shape}: {meaning}"
                )


def check_norm(norm: str) -> None:
    """Refuse what is neither of the two ways to treat norms.

    Parameters
    ----------
    norm : str

    Raises
    ------
    ValueError
    """
    if norm not in NORMS:
        raise ValueError(f"norm is {norm!r}, expected one of {', '.join(map(repr, NORMS))}")
