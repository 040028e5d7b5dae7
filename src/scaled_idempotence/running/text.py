"""Text for experiments that run a model: fixed segments of tokens."""

from __future__ import annotations

import hashlib
import importlib
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoints.model import OVModel
from ..errors import CannotRun, ScaledIdempotenceError
from ..linalg.draws import draw_seed
from .loading import RunningModel

#: Share of an encoder's tokens that are masked.
MASKED_SHARE = 0.15
#: Prose that ships with Python.
DEFAULT_TEXT = "pydoc_data.topics"
#: Tokens from the start of one segment to that of the next.
STRIDE = 5000


@dataclass(frozen=True)
class Segments:
    """Segments of a text.

    Attributes
    ----------
    tokens : (n, length) Tensor of int64
        What the model reads, with the tokenizer's special tokens around each segment.
    protected : (length,) Tensor of bool
        True for places that are never masked, since special tokens stand there.
    mask_token : int or None
    description : str
        Where the text is from.
    """

    tokens: Tensor = field(repr=False)
    protected: Tensor = field(repr=False)
    mask_token: int | None
    description: str

    @property
    def sha256(self) -> str:
        """Of the tokens: what was read, whatever the text is called."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    @property
    def identity(self) -> dict[str, object]:
        """What a table must say of the text that it was made with."""
        return {
            "text": self.description,
            "tokens_sha256": self.sha256,
            "n_segments": len(self.tokens),
            "length": self.tokens.shape[1],
        }

    def first(self, n: int) -> Segments:
        """Give the first `n` of the segments."""
        return Segments(self.tokens[:n], self.protected, self.mask_token, self.description)

    def masked(self) -> tuple[Tensor, Tensor]:
        """Mask tokens for an encoder, always the same ones.

        Returns
        -------
        tokens : (n, length) Tensor of int64
        places : (n, length) Tensor of bool
            Where the mask stands in place of the token.

        Raises
        ------
        CannotRun
            If the tokenizer has no mask token.
        """
        if self.mask_token is None:
            raise CannotRun("the tokenizer has no mask token, and a masked-token loss needs one")
        free = (~self.protected).nonzero()[:, 0].numpy()
        places = torch.zeros(self.tokens.shape, dtype=torch.bool)
        for n in range(len(self.tokens)):
            rng = np.random.default_rng(draw_seed("masked tokens", n))
            chosen = rng.choice(free, max(1, round(MASKED_SHARE * len(free))), replace=False)
            places[n, torch.from_numpy(chosen)] = True
        return self.tokens.masked_fill(places, self.mask_token), places


TextSource = str | Path | Segments | Tensor | None


def text_inputs(
    model: OVModel, text: TextSource, n_segments: int, length: int, tokenizer: Any = None
) -> dict[str, str | int]:
    """Tell apart, without running anything, what `segments` would cut from.

    Parameters
    ----------
    model : OVModel
    text : str, Path, Tensor or Segments, optional
    n_segments, length : int
        As for `segments`.
    tokenizer : optional
        That of a caller, in place of the model's own.

    Returns
    -------
    dict
        ``text`` and ``tokenizer``, hashes of content where it is here, else names; and the numbers.
    """
    if isinstance(text, Segments | Tensor):
        tokens = text.tokens if isinstance(text, Segments) else text
        title = hashlib.sha256(tokens.cpu().numpy().tobytes()).hexdigest()
    elif text is not None and (path := Path(text).expanduser()).is_file():
        title = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        title = str(text or f"{DEFAULT_TEXT} of Python {platform.python_version()}")
    digest = hashlib.sha256()
    if tokenizer is not None:
        digest.update(repr((type(tokenizer), sorted(tokenizer.get_vocab().items()))).encode())
    elif (folder := Path(model.source)).is_dir():
        # A folder's weights are told by their files, to which those of its tokenizer do not belong.
        for pattern in ("*token*", "vocab*", "merges*", "*.model"):
            for file in sorted(folder.glob(pattern)):
                digest.update(file.read_bytes())
    return {
        "text": title,
        "tokenizer": digest.hexdigest(),
        "n_segments": n_segments,
        "length": length,
    }


def segments(
    running: RunningModel, text: TextSource, n_segments: int, length: int, stride: int = STRIDE
) -> Segments:
    """Cut segments out of a text.

    Parameters
    ----------
    running : RunningModel
    text : str, Path, Tensor or Segments, optional
        A text file; the id of a data set, which the package ``datasets`` streams and whose column
        ``text`` is read; or tokens ``(n, length)`` as they are. English prose that ships with
        Python if left out: the topics of ``pydoc_data.topics`` in sorted order.
    n_segments, length : int
        Segment ``k`` begins at token ``k * stride`` of the text and has `length` tokens together
        with the special ones, or as many as the model can take.
    stride : int

    Returns
    -------
    Segments

    Raises
    ------
    CannotRun
        If there is no tokenizer.
    ScaledIdempotenceError
        If the text is too short or cannot be read, or nothing of it is asked for.
    """
    if n_segments < 1 or length < 2:
        raise ScaledIdempotenceError(
            f"got {n_segments} segments of {length} tokens, expected at least 1 of at least 2"
        )
    if isinstance(text, Segments):
        return text.first(n_segments)
    if isinstance(text, Tensor):
        if text.ndim != 2 or text.is_floating_point() or text.shape[1] < 2:
            raise ScaledIdempotenceError(
                f"text is a tensor of shape {tuple(text.shape)} and {text.dtype}, expected tokens "
                "(segments, length) with integers"
            )
        mask = getattr(running.tokenizer, "mask_token_id", None)
        protected = torch.zeros(text.shape[1], dtype=torch.bool)
        return Segments(text[:n_segments].long(), protected, mask, "tokens of the caller")
    tokenizer = running.tokenizer
    if tokenizer is None:
        raise CannotRun(
            "a model in memory has no tokenizer: pass tokenizer=..., or tokens as text=..."
        )
    length = min(length, running.max_length or length)
    before, after = _special(tokenizer)
    special = len(before) + len(after)
    inner = length - special
    if inner < 1:
        raise ScaledIdempotenceError(
            f"segments of {length} tokens have no room beside {special} special ones"
        )
    needed = (n_segments - 1) * stride + inner
    string, description = _read(text, needed)
    ids = tokenizer(string, add_special_tokens=False, verbose=False).input_ids
    if len(ids) < needed:
        raise ScaledIdempotenceError(
            f"{description} has {len(ids)} tokens, expected at least {needed} for {n_segments} "
            f"segments of {length}, one every {stride}; take a longer text or a smaller stride"
        )
    rows = [before + ids[k * stride :][:inner] + after for k in range(n_segments)]
    protected = torch.zeros(length, dtype=torch.bool)
    protected[: len(before)] = True
    protected[length - len(after) :] = True
    return Segments(torch.tensor(rows), protected, tokenizer.mask_token_id, description)


def _special(tokenizer) -> tuple[list[int], list[int]]:
    """Tokens that the tokenizer puts before and after a text."""
    bare = tokenizer("a", add_special_tokens=False).input_ids
    whole = tokenizer("a").input_ids
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return [], []


def _read(text: str | Path | None, n_tokens: int) -> tuple[str, str]:
    if text is None:
        from pydoc_data.topics import topics

        prose = "\n\n".join(topics[name] for name in sorted(topics))
        return prose, f"{DEFAULT_TEXT} of Python {platform.python_version()}"
    path = Path(text).expanduser()
    if path.is_file():
        return path.read_text(encoding="utf-8"), path.name
    if isinstance(text, Path) or path.suffix in (".txt", ".md"):
        raise ScaledIdempotenceError(f"there is no text file {path}")
    return _stream(text, n_tokens), f"data set {text}"


def _stream(name: str, n_tokens: int) -> str:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise ScaledIdempotenceError(
            f"{name!r} is no file. To read it as a data set of the hub: pip install datasets"
        ) from None
    # A token has seldom more than eight characters; what is streamed is cut there.
    parts, size = [], 0
    try:
        for row in datasets.load_dataset(name, split="train", streaming=True):
            parts.append(row["text"])
            size += len(parts[-1])
            if size > 8 * n_tokens:
                break
    except Exception as error:  # whatever the client raises, of the network or of the data
        raise ScaledIdempotenceError(
            f"{name!r} cannot be streamed as a data set with a column 'text' and a split 'train': "
            f"{type(error).__name__}: {error}"
        ) from error
    return "\n\n".join(parts)
