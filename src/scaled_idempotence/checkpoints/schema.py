"""What a row of the table of layouts says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .reader import Naming
from .storage import Norm, Output, ValueWeights


@dataclass(frozen=True)
class Keys:
    """Where a configuration keeps the hyperparameters: attributes, dotted paths, or functions.

    Parameters
    ----------
    d_model, n_layers, n_heads, n_value_heads, d_head : str or callable
        Of the transformers configuration. The number of value heads may be missing (then ``H``),
        and so may the head dimension (then ``d // H``).
    within : str
        Nested configuration that holds them; empty for the language model's ``text_config`` where
        there is one.
    """

    d_model: str = "hidden_size"
    n_layers: str = "num_hidden_layers"
    n_heads: str = "num_attention_heads"
    n_value_heads: str | Callable[[Any], int] = "num_key_value_heads"
    d_head: str = "head_dim"
    within: str = ""


@dataclass(frozen=True)
class Layout:
    """Where one family of architectures keeps what makes up ``T_h = O_h V_g(h)^T``.

    Parameters
    ----------
    family : str
        Name for listings.
    naming : {"transformers", "gguf"}
        Whose tensor names the templates are.
    architectures : tuple of str
        ``model_type`` of ``config.json``, or ``general.architecture`` of a GGUF file.
    value : ValueWeights
    output : Output
    prefixes : tuple of str
        What may stand before the templates, as bare and wrapped models are saved differently.
    norm_before : Norm, optional
        Norm that feeds the attention; absent in post-LN models.
    norm_after : Norm, optional
        Norm between the output projection and the residual stream (sandwich and post norms).
    norm_remark : str
        What a reader should know of folding where there is nothing, or only a part, to fold.
    keys : Keys
        Where the configuration keeps the hyperparameters.
    part : str
        Stack or tower, where the architecture has several; the first row's is the default.
    remark : str
        What a reader should know of the operators themselves.
    """

    family: str
    naming: Naming
    architectures: tuple[str, ...]
    value: ValueWeights
    output: Output
    prefixes: tuple[str, ...] = ("",)
    norm_before: Norm | None = None
    norm_after: Norm | None = None
    norm_remark: str = ""
    keys: Keys = field(default_factory=Keys)
    part: str = ""
    remark: str = ""


# Bare, with a head, and inside multimodal wrappers of several generations.
DECODER = (
    "model.",
    "",
    "language_model.model.",
    "model.language_model.",
    "language_model.",
    "model.text_model.",
    "text_model.",
)
