"""Where each architecture keeps its value and output weights: one table, a row a layout.

A new architecture is a new row. Readers know formats and no architecture; this table knows
architectures and no format beyond the names that the format gives to tensors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ..errors import CheckpointError
from .reader import Hyperparameters, TensorSlice

Naming = Literal["transformers", "gguf"]


@dataclass(frozen=True)
class NormSpec:
    """A norm whose gain can be folded into a factor.

    Parameters
    ----------
    weight : str
        Template of the tensor's name.
    offset : float
        The gain is ``offset + weight``: 1 for Gemma in safetensors, 0 elsewhere (GGUF files hold
        Gemma's 1 already).
    """

    weight: str
    offset: float = 0.0


@dataclass(frozen=True)
class Layout:
    """Where one family of architectures keeps what makes up ``T_h = O_h V_g(h)^T``.

    Parameters
    ----------
    naming : {"transformers", "gguf"}
        Whose tensor names the templates are.
    architectures : tuple of str
        ``model_type`` of ``config.json``, or ``general.architecture`` of a GGUF file.
    value, output : str
        Templates of the names of the value projection ``[G r, d]`` and of the output projection
        ``[d, H r]``; ``{layer}`` is the layer's number.
    prefixes : tuple of str
        What may stand before the templates, as bare and wrapped models are saved differently.
    norm_before : NormSpec, optional
        RMSNorm that feeds the attention; absent in post-LN models.
    norm_after : NormSpec, optional
        RMSNorm between the output projection and the residual stream (sandwich norms).
    norm_remark : str
        What a reader should know of folding where there is nothing, or only a part, to fold.
    """

    naming: Naming
    architectures: tuple[str, ...]
    value: str
    output: str
    prefixes: tuple[str, ...] = ("",)
    norm_before: NormSpec | None = None
    norm_after: NormSpec | None = None
    norm_remark: str = ""


LAYOUTS: tuple[Layout, ...] = (
    Layout(
        naming="transformers",
        architectures=("llama",),
        value="layers.{layer}.self_attn.v_proj.weight",
        output="layers.{layer}.self_attn.o_proj.weight",
        prefixes=("model.", ""),
        norm_before=NormSpec("layers.{layer}.input_layernorm.weight"),
    ),
    Layout(
        naming="transformers",
        architectures=("gemma3", "gemma3_text"),
        value="layers.{layer}.self_attn.v_proj.weight",
        output="layers.{layer}.self_attn.o_proj.weight",
        prefixes=("model.", "", "language_model.model.", "model.language_model."),
        norm_before=NormSpec("layers.{layer}.input_layernorm.weight", offset=1.0),
        norm_after=NormSpec("layers.{layer}.post_attention_layernorm.weight", offset=1.0),
    ),
    Layout(
        naming="transformers",
        architectures=("bert",),
        value="encoder.layer.{layer}.attention.self.value.weight",
        output="encoder.layer.{layer}.attention.output.dense.weight",
        prefixes=("", "bert."),
        norm_remark="post-LN: no norm feeds the attention, so there is nothing to fold",
    ),
    Layout(
        naming="gguf",
        architectures=("llama",),
        value="blk.{layer}.attn_v.weight",
        output="blk.{layer}.attn_output.weight",
        norm_before=NormSpec("blk.{layer}.attn_norm.weight"),
    ),
    Layout(
        naming="gguf",
        architectures=("gemma3",),
        value="blk.{layer}.attn_v.weight",
        output="blk.{layer}.attn_output.weight",
        norm_before=NormSpec("blk.{layer}.attn_norm.weight"),
        norm_after=NormSpec("blk.{layer}.post_attention_norm.weight"),
    ),
)


def find_layout(naming: Naming, architecture: str, where: str) -> Layout:
    """Find the row of the table for an architecture.

    Parameters
    ----------
    naming : {"transformers", "gguf"}
    architecture : str
    where : str
        The checkpoint, for the message.

    Returns
    -------
    Layout

    Raises
    ------
    CheckpointError
        If no row has it; the message lists those that do.
    """
    known = {name: row for row in LAYOUTS if row.naming == naming for name in row.architectures}
    if architecture in known:
        return known[architecture]
    raise CheckpointError(
        f"{where} has the architecture {architecture!r}, whose layout of value and output weights "
        f"is not known. Known with {naming} tensor names: {', '.join(sorted(known))}. To add one, "
        "add a row to scaled_idempotence/checkpoints/layouts.py"
    )


def find_prefix(layout: Layout, names: Collection[str], where: str) -> str:
    """Find which prefix the tensors of a checkpoint carry.

    Parameters
    ----------
    layout : Layout
    names : collection of str
        Names of all tensors.
    where : str
        The checkpoint, for the message.

    Returns
    -------
    str

    Raises
    ------
    CheckpointError
        If the value projection of layer 0 is there under no prefix.
    """
    wanted = [prefix + layout.value.format(layer=0) for prefix in layout.prefixes]
    for prefix, name in zip(layout.prefixes, wanted, strict=True):
        if name in names:
            return prefix
    near = sorted(name for name in names if "att" in name and ".0." in name)[:8]
    raise CheckpointError(
        f"{where} holds no tensor named {' or '.join(wanted)}, where "
        f"{'/'.join(layout.architectures)} keeps the values of layer 0. Its attention tensors "
        f"there: {', '.join(near) or 'none'}"
    )


def wanted(
    layout: Layout, prefix: str, hyperparameters: Hyperparameters, layer: int, norm: str
) -> list[TensorSlice]:
    """List what must be read for the factors of one layer.

    Parameters
    ----------
    layout : Layout
    prefix : str
        As `find_prefix` gives it.
    hyperparameters : Hyperparameters
        Where the rows of the values lie in a fused tensor depends on them.
    layer : int
    norm : {"raw", "folded"}

    Returns
    -------
    list of TensorSlice
    """
    templates = [layout.value, layout.output]
    if norm == "folded":
        norms = (layout.norm_before, layout.norm_after)
        templates += [spec.weight for spec in norms if spec is not None]
    return [TensorSlice(prefix + template.format(layer=layer)) for template in templates]
