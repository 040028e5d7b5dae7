"""Train a small byte-level decoder, and keep its checkpoints: the whole script, on one page.

The model is the Llama of transformers (pre-norm RMSNorm, rotary positions, gated MLP), so that each
checkpoint is an ordinary folder that transformers and `open_model` open. A run is a function of its
`Recipe`, the text and the versions of Python, torch and transformers, to the last bit:

* weights are drawn from the seed, and the batch of a step from (seed, step);
* one thread, deterministic kernels, float32;
* an interrupted run goes on from its last saved state, weights and both moments of AdamW, and ends
  with the bits of a run that was never interrupted.

A run's folder::

    step-000064/config.json, model.safetensors   a checkpoint
    state.pt                                     where to go on; gone when the run has ended
    lineage.json                                 written last: recipe, losses, sha256 of the weights
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from ..files import replacing
from .corpus import Corpus, read_corpus

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STATE = "state.pt"
LINEAGE = "lineage.json"
WEIGHTS = "model.safetensors"
TIED = "lm_head.weight"  # the embeddings again
VOCABULARY = 256  # bytes

#: Steps between two saves of the state: what an interruption costs at most.
STATE_EVERY = 32
#: Segments of the held-out text on which the loss of a checkpoint is measured.
HELD_OUT_SEGMENTS = 32


@dataclass(frozen=True)
class Recipe:
    """Everything that a run is made of, beside the text.

    Parameters
    ----------
    n_layers, n_heads, n_value_heads, d_head, d_model, d_mlp : int
    context : int
        Bytes that the model sees at once.
    batch : int
        Segments a step.
    steps : int
    learning_rate : float
        After a linear rise over the first `warmup` steps it stays as it is: a schedule that ends
        would make the last checkpoints differ from the others for a reason of its own.
    warmup : int
    weight_decay : float
        Of the matrices; the gains of the norms have none.
    betas : pair of float
        Of AdamW.
    clip : float
        Largest norm of the gradient.
    init_std : float
        Standard deviation of every entry at step 0, transformers' own default.
    seed : int
    """

    n_layers: int = 4
    n_heads: int = 4
    n_value_heads: int = 4
    d_head: int = 64
    d_model: int = 128
    d_mlp: int = 256
    context: int = 128
    batch: int = 8
    steps: int = 256
    learning_rate: float = 6e-4
    warmup: int = 32
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    init_std: float = 0.02
    seed: int = 0

    def checkpoints(self) -> list[int]:
        """Steps that are kept: 0, the powers of two, one between each pair of the later, the last.

        Returns
        -------
        list of int

        Examples
        --------
        >>> Recipe(steps=200).checkpoints()
        [0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 200]
        """
        powers = [2**n for n in range(self.steps.bit_length())]
        between = [3 * power // 2 for power in powers if power >= 32]
        return sorted({0, self.steps} | {n for n in powers + between if n < self.steps})

    def run_id(self, corpus: Corpus) -> str:
        """Hash everything that the weights depend on.

        Parameters
        ----------
        corpus : Corpus

        Returns
        -------
        str
            16 hexadecimal digits.
        """
        identity = {
            "recipe": asdict(self),
            "corpus": corpus.sha256,
            "python": platform.python_version(),
            "torch": version("torch"),
            "transformers": version("transformers"),
            "script": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def checkpoint_folder(run: Path, step: int) -> Path:
    """Folder of a checkpoint."""
    return run / f"step-{step:06d}"


def make_model(recipe: Recipe) -> PreTrainedModel:
    """Make the decoder with its weights at step 0; the global generator is left as it was."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=recipe.d_model,
        intermediate_size=recipe.d_mlp,
        num_hidden_layers=recipe.n_layers,
        num_attention_heads=recipe.n_heads,
        num_key_value_heads=recipe.n_value_heads,
        head_dim=recipe.d_head,
        max_position_embeddings=recipe.context,
        initializer_range=recipe.init_std,
        tie_word_embeddings=True,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        # Every configuration takes it, and the class does not declare it.
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue]
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(config)
    model.config.architectures = [type(model).__name__]
    return model


def make_optimizer(model: torch.nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Make AdamW, whose weight decay spares the gains of the norms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas)


def next_byte_loss(model: torch.nn.Module, segments: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next byte, in nats.

    Parameters
    ----------
    model : torch.nn.Module
    segments : (B, T + 1) Tensor of int64

    Returns
    -------
    () Tensor
    """
    logits = model(input_ids=segments[:, :-1]).logits
    return cross_entropy(logits.flatten(0, 1), segments[:, 1:].flatten())


def segments_of(text: np.ndarray, starts: np.ndarray, length: int) -> torch.Tensor:
    """Cut segments out of the text.

    Parameters
    ----------
    text : (n,) ndarray of uint8
    starts : (B,) ndarray of int
    length : int

    Returns
    -------
    (B, length) Tensor of int64
    """
    return torch.from_numpy(text[starts[:, None] + np.arange(length)].astype(np.int64))


def batch_of(recipe: Recipe, text: np.ndarray, step: int) -> torch.Tensor:
    """Segments of a step, which depend on the seed and the step alone."""
    rng = np.random.default_rng([recipe.seed, step])
    length = recipe.context + 1
    return segments_of(text, rng.integers(len(text) - length + 1, size=recipe.batch), length)


def held_out_loss(model: torch.nn.Module, recipe: Recipe, text: np.ndarray) -> float:
    """Loss on segments of the held-out text that are the same at every checkpoint."""
    length = recipe.context + 1
    starts = np.linspace(0, len(text) - length, HELD_OUT_SEGMENTS).astype(np.int64)
    with torch.no_grad():
        return next_byte_loss(model, segments_of(text, starts, length)).item()


@contextmanager
def one_deterministic_thread() -> Iterator[None]:
    """Let sums be added in one order, whatever the number of cores; restored at the end."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict)
        torch.set_num_threads(threads)


def train(
    recipe: Recipe,
    run: Path,
    report: Callable[[int], object] = lambda step: None,
    corpus: Corpus | None = None,
) -> None:
    """Train, or go on training, until the run's folder is whole.

    Parameters
    ----------
    recipe : Recipe
    run : Path
        The run's folder.
    report : callable
        Is told the number of steps made; whatever it raises interrupts the run, which can be
        called again.
    corpus : Corpus, optional
        The standard library's source if not given.
    """
    corpus = corpus or read_corpus()
    run.mkdir(parents=True, exist_ok=True)
    keep = set(recipe.checkpoints())
    with one_deterministic_thread():
        model = make_model(recipe)
        optimizer = make_optimizer(model, recipe)
        done, losses = _resume(recipe, run, model, optimizer)
        while True:
            report(done)
            if done in keep:
                losses["held_out"][str(done)] = held_out_loss(model, recipe, corpus.held_out)
                save_checkpoint(model, checkpoint_folder(run, done))
            if done in keep or done % STATE_EVERY == 0:
                _save_state(run, model, optimizer, done, losses)
            if done == recipe.steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * min(1.0, (done + 1) / recipe.warmup)
            optimizer.zero_grad()
            loss = next_byte_loss(model, batch_of(recipe, corpus.training, done))
            loss.backward()
            clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            losses["training"].append(loss.item())
            done += 1
    _finish(recipe, run, losses)


def _resume(
    recipe: Recipe, run: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, dict]:
    """Put back the last saved state, if the checkpoints up to it are there too.

    Gives the steps made and the losses so far.
    """
    anew = 0, {"training": [], "held_out": {}}
    try:
        state = torch.load(run / STATE, weights_only=True)
        earlier = [step for step in recipe.checkpoints() if step < state["done"]]
    except FileNotFoundError:
        return anew
    except (RuntimeError, EOFError, KeyError, TypeError, UnpicklingError) as error:
        warnings.warn(f"{run / STATE} is damaged ({error}): the run begins anew", stacklevel=2)
        return anew
    if not all(_weights(run, step).is_file() for step in earlier):
        return anew
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["done"], state["losses"]


def _save_state(
    run: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, done: int, losses: dict
) -> None:
    state = {
        "done": done,
        "losses": losses,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    # An open file: torch names the archive inside after a path's stem, which a dotfile has not.
    with replacing(run / STATE) as scratch, open(scratch, "wb") as file:
        torch.save(state, file)


def save_checkpoint(model: PreTrainedModel, folder: Path) -> None:
    """Save an ordinary checkpoint, whole or not at all.

    Parameters
    ----------
    model : PreTrainedModel
    folder : Path
        Replaced if it is there: then it was left by an interrupted run, and holds the same.
    """
    # Not save_pretrained, which draws a bar for every checkpoint.
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != TIED}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".checkpoint-") as scratch:
        target = Path(scratch) / folder.name
        model.config.save_pretrained(target)
        save_file(weights, target / WEIGHTS, metadata={"format": "pt"})
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(target, folder)


def _weights(run: Path, step: int) -> Path:
    return checkpoint_folder(run, step) / WEIGHTS


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _finish(recipe: Recipe, run: Path, losses: dict) -> None:
    content = {
        "recipe": asdict(recipe),
        "python": platform.python_version(),
        "torch": version("torch"),
        "losses": losses,
        "sha256": {str(step): _sha256(_weights(run, step)) for step in recipe.checkpoints()},
    }
    with replacing(run / LINEAGE) as scratch:
        scratch.write_text(json.dumps(content, indent=1), encoding="utf-8")
    (run / STATE).unlink(missing_ok=True)


def finished(run: Path) -> dict | None:
    """What a finished run says of itself, if it is there and nothing of it is damaged.

    Parameters
    ----------
    run : Path

    Returns
    -------
    dict or None
        ``recipe``, ``losses`` (``training`` a value a step, ``held_out`` by step) and ``sha256``
        of the weights by step.
    """
    try:
        content = json.loads((run / LINEAGE).read_text(encoding="utf-8"))
        whole = all(_sha256(_weights(run, int(n))) == h for n, h in content["sha256"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return content if whole else None


def main() -> None:
    """Train in this process: its arguments are a recipe as JSON and the run's folder.

    Prints the steps made, a line each, for the process that started it.
    """
    given = json.loads(sys.argv[1])
    given["betas"] = tuple(given["betas"])
    train(Recipe(**given), Path(sys.argv[2]), lambda step: print(step, flush=True))


if __name__ == "__main__":
    main()
