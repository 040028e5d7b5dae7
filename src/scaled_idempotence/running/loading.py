"""Run a model: transformers executes it, the table of layouts finds its output projections.

A checkpoint that opens as factors need not run: it can be too large, be one stack of several, or
take no text. Whatever stands in the way becomes `CannotRun` with the reason, so that a page can say
so and go on with what the factors alone show.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import gguf
import numpy as np
import torch
from torch import Tensor

from ..checkpoints.model import OVModel
from ..checkpoints.module import LiveModule
from ..errors import CannotRun, CheckpointError

LanguageTask = Literal["causal", "masked", "none"]

#: Stored weights, in bytes, up to which a model is run unless a caller says otherwise.
MAX_BYTES = 4 * 10**9


@dataclass(frozen=True)
class OutputProjection:
    """The output projection of one layer inside a running model.

    Attributes
    ----------
    layer : int
        The model's own number of the layer.
    module : torch.nn.Module
        Its input holds the heads' outputs before ``O``, one after another.
    block : torch.nn.Module
        The layer around it.
    transposed : bool
        True for a weight of shape ``[H r, d]`` (Conv1D).
    n_heads, d_head : int
    """

    layer: int
    module: torch.nn.Module = field(repr=False)
    block: torch.nn.Module = field(repr=False)
    transposed: bool
    n_heads: int
    d_head: int

    @property
    def weight(self) -> Tensor:
        """The stored weight of all heads, sharing its memory."""
        return self.module.get_parameter("weight").detach()

    def weights(self, head: int) -> Tensor:
        """Give the part of the stored weight that is ``O_h``, ``(d, r)``, sharing its memory."""
        return self.part(self.weight, head)

    def part(self, stored: Tensor, head: int) -> Tensor:
        """Give a head's part, ``(d, r)``, of what is laid out as the stored weight is."""
        part = slice(head * self.d_head, (head + 1) * self.d_head)
        return stored[part].mT if self.transposed else stored[:, part]


@dataclass(frozen=True)
class RunningModel:
    """A model that transformers executes.

    Attributes
    ----------
    module : transformers.PreTrainedModel
        In evaluation mode; in float32 where it was loaded here.
    tokenizer : transformers.PreTrainedTokenizerBase or None
        None for a model in memory that came without one.
    task : {"causal", "masked", "none"}
        What its trained head predicts: the next token, a masked token, or nothing, where the
        checkpoint holds no head.
    projections : tuple of OutputProjection
        By position in the `OVModel`.
    """

    module: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    task: LanguageTask
    projections: tuple[OutputProjection, ...] = field(repr=False)

    @property
    def has_loss(self) -> bool:
        """Whether its trained head predicts something."""
        return self.task != "none"

    @property
    def max_length(self) -> int | None:
        """Longest input that the position embeddings allow; None where there is no limit."""
        config = self.module.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        if limit is not None and config.model_type in ("roberta", "xlm-roberta"):
            limit -= 1 + (config.pad_token_id or 0)  # its positions begin after the padding's
        return limit

    def hidden(self, tokens: Tensor) -> Tensor:
        """Run the model without its head.

        Parameters
        ----------
        tokens : (n, length) Tensor of int64

        Returns
        -------
        (n, length, d) Tensor
            Last hidden states.
        """
        with torch.inference_mode():
            return self.module.base_model(input_ids=tokens, **self._options).last_hidden_state

    def logits(self, tokens: Tensor) -> Tensor:
        """Run the model with its head; gradients are kept where the caller's mode keeps them.

        Parameters
        ----------
        tokens : (n, length) Tensor of int64

        Returns
        -------
        (n, length, vocabulary) Tensor
        """
        return self.module(input_ids=tokens, **self._options).logits

    @property
    def _options(self) -> dict[str, bool]:
        # Nothing is generated, and a cache of keys would outlive the weights it was made with.
        return {"use_cache": False} if hasattr(self.module.config, "use_cache") else {}


def run_model(
    model: OVModel, *, tokenizer: Any = None, max_bytes: float = MAX_BYTES
) -> RunningModel:
    """Load a model so that it runs.

    Parameters
    ----------
    model : OVModel
        From `open_model`. A bundled model, a folder or a ``.gguf`` file is loaded from where it is;
        a model in memory is used as it is; a model on the hub is downloaded whole.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        In place of the checkpoint's own; a model in memory has none.
    max_bytes : float
        Size of all stored weights up to which a model is loaded (or downloaded).

    Returns
    -------
    RunningModel

    Raises
    ------
    CannotRun
        With the reason.
    """
    reader = model.reader
    if model.part:
        raise CannotRun(
            f"{model.name} is the {model.part} of a model of several parts, for which no protocol "
            "of text and loss is defined here"
        )
    if isinstance(reader, LiveModule):
        module, task = reader.module, _task_of(reader.module)
    else:
        _, stored = model.sizes()
        if stored > max_bytes:
            raise CannotRun(
                f"the weights of {model.name} take {stored / 1e9:.2g} GB, more than the limit of "
                f"{max_bytes / 1e9:.2g} GB up to which a model is run; raise max_bytes to run it"
            )
        module, own_tokenizer, task = _load(model)
        tokenizer = tokenizer or own_tokenizer
    if module.training and isinstance(reader, LiveModule):
        raise CannotRun("the model in memory is in training mode, with dropout; call eval() first")
    return RunningModel(module, tokenizer, task, _projections(model, module))


def _load(model: OVModel) -> tuple[Any, Any, LanguageTask]:
    import transformers

    where, options = model.reader.pretrained()
    # Code that comes with a model is never run.
    options["trust_remote_code"] = False
    try:
        with _quiet(), _parsed_once():
            config = transformers.AutoConfig.from_pretrained(where, **options)
            auto, task = _auto_class(config, model.name)
            how = options | {"dtype": torch.float32, "output_loading_info": True}
            module, loaded = auto.from_pretrained(where, **how)
            # A head that the file does not hold is made at random: what it says means nothing.
            if loaded["missing_keys"] and auto is not transformers.AutoModel:
                task = "none"
                module, loaded = transformers.AutoModel.from_pretrained(where, **how)
            missing = [key for key in loaded["missing_keys"] if "pooler" not in key]
            if missing:
                raise CannotRun(
                    f"{model.source} lacks {len(missing)} of the weights that "
                    f"{type(module).__name__} runs on, among them {sorted(missing)[0]}"
                )
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
    except CannotRun:
        raise
    # transformers raises whatever its parts raise.
    except Exception as error:
        raise CannotRun(
            f"transformers cannot load {model.source}: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
        ) from error
    return module.eval(), tokenizer, task


def _auto_class(config: Any, name: str) -> tuple[Any, LanguageTask]:
    import transformers
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    if config.is_encoder_decoder:
        raise CannotRun(
            f"{name} is an encoder-decoder, for which no protocol of text and loss is defined here"
        )
    # Encoders are in both lists, as decoders too, but were trained to fill masks.
    if kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return transformers.AutoModelForMaskedLM, "masked"
    if kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return transformers.AutoModelForCausalLM, "causal"
    raise CannotRun(f"{name} ({kind}) is no model of text, or none that transformers runs")


def _task_of(module: Any) -> LanguageTask:
    from transformers.models.auto import modeling_auto as auto

    name = type(module).__name__
    if name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values():
        return "masked"
    return "causal" if name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() else "none"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the remarks and bars of transformers, which would end up on a page."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


class _PlainReader(gguf.GGUFReader):
    """`gguf.GGUFReader` over a plain array: slices of a memmap cost six times as much."""

    def _build_fields(self, offs: int, count: int) -> int:
        self.data = self.data.view(np.ndarray)
        return super()._build_fields(offs, count)


@contextmanager
def _parsed_once() -> Iterator[None]:
    """Let transformers parse a GGUF file once.

    It makes three readers of one file, each with Python objects for every token of the vocabulary,
    and a table of all known tensor names for every submodule: 35 s for the default model, 12 with
    this. Should it look these two up elsewhere one day, it is slow again and no more than that.
    """
    names = {
        "GGUFReader": functools.cache(_PlainReader),
        "get_tensor_name_map": functools.cache(gguf.get_tensor_name_map),
    }
    before = {name: getattr(gguf, name) for name in names}
    try:
        for name, value in names.items():
            setattr(gguf, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(gguf, name, value)


def _projections(model: OVModel, module: Any) -> tuple[OutputProjection, ...]:
    """Find the modules of the output projections by the memory of their weights.

    The table of layouts names tensors as files do; in memory transformers may call them otherwise.
    """
    try:
        reader = LiveModule(module)
        live = OVModel(model.name, reader, "raw")
    except CheckpointError as error:
        raise CannotRun(f"the loaded model is laid out in no known way: {error}") from error
    if (live.layers, live.n_heads, live.d_head) != (model.layers, model.n_heads, model.d_head):
        raise CannotRun(
            f"the loaded model has layers {live.layers} of {live.n_heads} heads, the checkpoint "
            f"{model.layers} of {model.n_heads}"
        )
    owners = {
        parameter.data_ptr(): path.removesuffix(".weight")
        for path, parameter in module.named_parameters()
        if path.endswith(".weight")
    }
    found = []
    for layer in live.layers:
        template = live.prefix + live.layout.output.weight
        name = live.hyperparameters.named(template, layer)
        tensor = reader.tensor(name)
        path = owners.get(tensor.data_ptr())
        if path is None or not tensor.is_floating_point():
            raise CannotRun(f"{name} is not the weight of one module, or not of floating point")
        places = module.get_submodule(path), _block(module, path)
        transposed = live.layout.output.transposed
        found.append(OutputProjection(layer, *places, transposed, live.n_heads, live.d_head))
    if len({id(one.module) for one in found}) < len(found):
        raise CannotRun("layers of this model share one output projection, so none can be changed")
    return tuple(found)


def _block(module: Any, path: str) -> torch.nn.Module:
    """Give the member of a `ModuleList` that a module is in: the layer."""
    steps = path.split(".")
    for depth in range(1, len(steps)):
        if isinstance(module.get_submodule(".".join(steps[:depth])), torch.nn.ModuleList):
            return module.get_submodule(".".join(steps[: depth + 1]))
    return module.get_submodule(path)
