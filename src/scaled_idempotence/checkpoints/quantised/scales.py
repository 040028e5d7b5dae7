"""Stored numbers to float64: plain floats, and fp8 with the scales that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from ...errors import CheckpointError
from ..reader import Reader

FLOATS = {"F64", "F32", "F16", "BF16"}
FP8 = {"F8_E4M3", "F8_E5M2"}
BLOCK = 128
#: What may be beside ``x.weight``; both are multiplied, whatever the first one's name says.
SCALES = ("weight_scale_inv", "weight_scale")
# Tensors that stand in for a weight in quantised checkpoints.
STAND_INS = {
    "qweight": "GPTQ or AWQ",
    "weight_packed": "compressed-tensors",
    "weight_quantized": "compressed-tensors",
    "blocks": "MXFP4",
}
WAY_OUT = (
    "Take the unquantised weights or a GGUF file of this model, or load it with transformers, "
    "call model.dequantize(), and save_pretrained to a folder"
)


def scale_of(name: str, names: Collection[str]) -> str | None:
    """Give the name of the scale that belongs to a weight, if there is one.

    Parameters
    ----------
    name : str
    names : collection of str
        Names of all tensors.

    Returns
    -------
    str or None
    """
    stem = name.removesuffix("weight")
    found = (stem + scale for scale in SCALES if stem != name and stem + scale in names)
    return next(found, None)


def scale_rows(
    shape: tuple[int, ...], scale_shape: tuple[int, ...], rows: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Say which rows of a scale belong to rows of a weight.

    Parameters
    ----------
    shape, scale_shape : tuple of int
        Of the whole weight and of its whole scale.
    rows : tuple of (int, int), optional

    Returns
    -------
    tuple of (int, int) or None
        None for the whole scale.
    """
    if rows is None or not scale_shape or scale_shape[0] == 1:
        return None
    if scale_shape[0] == shape[0]:
        return rows
    return rows[0] // BLOCK, -(-rows[1] // BLOCK)


def apply_scale(
    weight: Tensor,
    scale: Tensor,
    shape: tuple[int, ...],
    scale_shape: tuple[int, ...],
    rows: tuple[int, int] | None,
) -> Tensor:
    """Multiply rows of a weight with the rows of its scale that `scale_rows` names.

    Parameters
    ----------
    weight : (m, n) Tensor
    scale : Tensor
        One number, one for each row, or one for each block of 128 x 128.
    shape, scale_shape : tuple of int
        Of the whole weight and of its whole scale.
    rows : tuple of (int, int), optional

    Returns
    -------
    (m, n) Tensor

    Raises
    ------
    ValueError
        If the scale's shape is none of these.
    """
    weight, scale = weight.double(), scale.double()
    blocks = tuple(-(-n // BLOCK) for n in shape)
    if scale.numel() == 1 and scale_shape != blocks:
        return weight * scale.reshape(())
    if scale_shape in ((shape[0],), (shape[0], 1)):
        return weight * scale.reshape(-1, 1)
    if scale_shape != blocks or len(shape) != 2:
        raise ValueError(
            f"a scale of shape {scale_shape} fits no weight of shape {shape}: expected one number, "
            f"{shape[0]} rows, or {blocks} blocks of {BLOCK}"
        )
    start = rows[0] % BLOCK if rows else 0
    down = scale.repeat_interleave(BLOCK, 0)[start : start + weight.shape[0]]
    return weight * down.repeat_interleave(BLOCK, 1)[:, : shape[1]]


def check_stored_type(reader: Reader, name: str) -> str | None:
    """Refuse a tensor whose numbers cannot be told from its stored type.

    Parameters
    ----------
    reader : Reader
    name : str

    Returns
    -------
    str or None
        Name of the scale without which an fp8 weight has no values; None for other floats.

    Raises
    ------
    CheckpointError
        If it is stored as something that is no float, or as fp8 without a scale.
    """
    dtype = reader.dtype(name)
    if dtype not in FLOATS | FP8:
        scheme = f" by {reader.quantisation}" if reader.quantisation else ""
        raise CheckpointError(
            f"{name} of {reader.where} is stored as {dtype}{scheme}; only "
            f"{', '.join(sorted(FLOATS | FP8))} can be read. {WAY_OUT}"
        )
    scale = scale_of(name, reader.names) if dtype in FP8 else None
    if dtype in FP8 and scale is None:
        raise CheckpointError(
            f"{name} of {reader.where} is stored as {dtype} without a scale beside it "
            f"({' or '.join(SCALES)}), so its values are not known. {WAY_OUT}"
        )
    return scale


def read_scaled(
    reader: Reader,
    read: Callable[[str, tuple[int, int] | None], Tensor],
    name: str,
    rows: tuple[int, int] | None,
) -> Tensor:
    """Read a weight in float64, with its scale multiplied in where it is fp8.

    Parameters
    ----------
    reader : Reader
        For names, shapes and types.
    read : callable
        Reads a tensor, or a range of its rows, as stored.
    name : str
    rows : tuple of (int, int), optional

    Returns
    -------
    Tensor of float64

    Raises
    ------
    CheckpointError
        If it is stored as something that is no float, or as fp8 without a scale.
    """
    scale = check_stored_type(reader, name)
    if scale is None:
        return read(name, rows).to(torch.float64)
    shape, scale_shape = reader.shape(name), reader.shape(scale)
    part = scale_rows(shape, scale_shape, rows)
    try:
        return apply_scale(read(name, rows), read(scale, part), shape, scale_shape, rows)
    except ValueError as error:
        raise CheckpointError(f"{scale} of {reader.where}: {error}") from error


def explain_missing(name: str, names: Collection[str], quantisation: str) -> str:
    """Say why a weight is missing, as far as its neighbours tell.

    Parameters
    ----------
    name : str
    names : collection of str
        Names of all tensors.
    quantisation : str
        The scheme that the configuration declares; empty for none.

    Returns
    -------
    str
        Starts with a space; empty if nothing is known.
    """
    stem = name.removesuffix("weight")
    for suffix, scheme in STAND_INS.items():
        if stem + suffix in names:
            return (
                f". There is {stem}{suffix} instead: the weights are quantised by "
                f"{quantisation or scheme}, which is not read. {WAY_OUT}"
            )
    return ""
