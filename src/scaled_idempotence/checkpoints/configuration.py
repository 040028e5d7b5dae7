"""Hyperparameters out of a ``config.json``, with the defaults that the file leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ..errors import CheckpointError
from .finding import choose_part, rows_of
from .reader import Hyperparameters
from .schema import Keys

# Names of one thing in the configurations of architectures that transformers does not know.
ALIASES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "d_head", "d_kv"),
}
# Layers of these types, as `layer_types` of a configuration calls them, mix tokens without T.
WITHOUT_T = ("linear", "mamba", "conv", "recurrent", "moe", "mlp")


@dataclass(frozen=True)
class Configuration:
    """What a configuration tells of a checkpoint's layout.

    Attributes
    ----------
    architecture : str
        The ``model_type`` by which the table of layouts is searched.
    part : str
        The stack or tower that is read; empty where there is one only.
    hyperparameters : Hyperparameters
    quantisation : str
        Name of the scheme that the configuration declares; empty for none.
    """

    architecture: str
    part: str
    hyperparameters: Hyperparameters
    quantisation: str


def read_configuration(config: dict, where: str, part: str | None = None) -> Configuration:
    """Read the content of a ``config.json``.

    Parameters
    ----------
    config : dict
    where : str
        The file, for messages.
    part : str, optional
        Stack or tower, where the architecture has several; None for the default.

    Returns
    -------
    Configuration

    Raises
    ------
    CheckpointError
        If something that fixes the shapes is missing or is no positive integer, or if there is no
        such part.

    Notes
    -----
    Files leave out what equals the defaults of transformers, so the defaults come from its own
    configuration class where it knows the ``model_type``. Code that comes with a model is never
    run.
    """
    declared = config.get("quantization_config") or {}
    quantisation = str(declared.get("quant_method", "")) if isinstance(declared, dict) else ""
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    architecture = config.get("model_type")
    if architecture is None:
        raise CheckpointError(f"{where} lacks 'model_type'")
    architecture = str(architecture)
    chosen = choose_part("transformers", architecture, part, where)
    rows = rows_of("transformers", architecture, chosen)
    keys = rows[0].keys if rows else Keys()

    nested = keys.within or "text_config"
    settings = _with_defaults(architecture, config, where)
    if keys.within or config.get("text_config") is not None:
        raw = config.get(nested) or {}
        settings = getattr(settings, nested)
        inner = str(raw.get("model_type") or getattr(settings, "model_type", architecture))
        if isinstance(settings, dict):  # transformers does not know the wrapper
            settings = _with_defaults(inner, settings, where)
        if not keys.within and not (rows and inner in rows[0].architectures):
            architecture = inner
            chosen = choose_part("transformers", architecture, None, where)
            rows = rows_of("transformers", architecture, chosen)
            keys = rows[0].keys if rows else Keys()
    return Configuration(
        architecture, chosen, _hyperparameters(settings, keys, where), quantisation
    )


def _with_defaults(model_type: str, config: dict, where: str) -> Any:
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        return SimpleNamespace(**config)
    kind = CONFIG_MAPPING[model_type]
    for value in (config, *(v for v in config.values() if isinstance(v, dict))):
        _check_counts(value, getattr(kind, "attribute_map", {}), where)
    try:
        return kind(**{k: v for k, v in config.items() if k != "model_type"})
    # The classes check their arguments each in its own way.
    except Exception as error:
        raise CheckpointError(
            f"{where} is not what {kind.__name__} of transformers takes: {error}"
        ) from error


def _check_counts(config: dict, names: dict[str, str], where: str) -> None:
    # Before the class divides by one of them.
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim"):
        for name in {key, names.get(key, key)} & config.keys():
            if isinstance(config[name], int):
                _count(config[name], name, where)


def _count(value: Any, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError(f"{where} has {key} = {value!r}, expected a positive integer")
    return value


def _get(settings: Any, key: str | Callable[[Any], int]) -> Any:
    if callable(key):
        return key(settings)
    for name in ALIASES.get(key, (key,)):
        value = settings
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        if value is not None:
            return value
    return None


def _hyperparameters(settings: Any, keys: Keys, where: str) -> Hyperparameters:
    def count(key: str | Callable[[Any], int], default: int | None = None) -> int:
        value = _get(settings, key)
        name = key if isinstance(key, str) else "the number of value heads"
        if value is None and default is None:
            raise CheckpointError(f"{where} lacks {name!r}")
        return _count(default if value is None else value, name, where)

    d_model, n_heads = count(keys.d_model), count(keys.n_heads)
    n_layers = count(keys.n_layers)
    layers, stored, remark = _layers(settings, n_layers, where)
    return Hyperparameters(
        d_model=d_model,
        d_head=count(keys.d_head, max(1, d_model // n_heads)),
        n_layers=n_layers,
        n_heads=n_heads,
        n_value_heads=count(keys.n_value_heads, n_heads),
        layers=layers,
        stored_layers=stored,
        d_latent=_get(settings, "kv_lora_rank") or 0,
        d_key=_get(settings, "qk_nope_head_dim") or 0,
        pre_norm=getattr(settings, "do_layer_norm_before", True) is not False,
        remark=remark,
    )


def _layers(
    settings: Any, n_layers: int, where: str
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Say which layers have an OV operator of their own, and their numbers in the file."""
    layers = tuple(range(n_layers))
    if groups := getattr(settings, "num_hidden_groups", None):
        if getattr(settings, "inner_group_num", 1) != 1:
            raise CheckpointError(
                f"{where} has inner_group_num = {settings.inner_group_num}; only groups of one "
                "layer can be read"
            )
        # Layer i is of group i // (layers / groups).
        group_of = [int(i / (n_layers / groups)) for i in layers]
        first = tuple(group_of.index(group) for group in range(groups))
        remark = ""
        if groups < n_layers:
            remark = (
                f"the {n_layers} layers share the weights of {groups}: each group is read once, as "
                "its first layer"
            )
        return first, tuple(range(groups)), remark
    kinds = getattr(settings, "layer_types", None) or ["full_attention"] * n_layers
    kept = tuple(
        i for i, kind in zip(layers, kinds, strict=False) if not str(kind).startswith(WITHOUT_T)
    )
    remark = ""
    if len(kept) < n_layers:
        without = sorted({str(kind) for kind in kinds if str(kind).startswith(WITHOUT_T)})
        remark = f"{n_layers - len(kept)} of {n_layers} layers have no T: {', '.join(without)}"
    if shared := getattr(settings, "num_kv_shared_layers", None):
        kept = tuple(i for i in kept if i < n_layers - shared)
        remark = (
            f"the last {shared} of {n_layers} layers take the values of an earlier layer and have "
            "no T of their own"
        )
    if not kept:
        raise CheckpointError(f"{where}: no layer has an attention of its own ({remark})")
    return kept, kept, remark
