"""Find the row of the table of layouts that a checkpoint follows."""

from __future__ import annotations

from ..errors import CheckpointError
from .assembly import expected_shapes
from .layouts import LAYOUTS, SELF
from .reader import Naming, Reader
from .schema import Layout
from .storage import Linear, Separate


# --- looking up -----------------------------------------------------------------------------------
def rows_of(naming: Naming, architecture: str, part: str | None = None) -> list[Layout]:
    """Give the rows of an architecture, all or those of one part; the default part's first.

    Parameters
    ----------
    naming : {"transformers", "gguf"}
    architecture : str
    part : str, optional

    Returns
    -------
    list of Layout
        Empty if there is none.
    """
    rows = [row for row in LAYOUTS if row.naming == naming and architecture in row.architectures]
    return rows if part is None else [row for row in rows if row.part == part]


def choose_part(naming: Naming, architecture: str, part: str | None, where: str) -> str:
    """Choose which stack or tower of an architecture to read.

    Parameters
    ----------
    naming : {"transformers", "gguf"}
    architecture : str
    part : str, optional
        What the caller asks for; None for the default.
    where : str
        The checkpoint, for the message.

    Returns
    -------
    str
        Empty for an architecture that has one part only.

    Raises
    ------
    CheckpointError
        If the architecture has no such part.
    """
    parts = list(dict.fromkeys(row.part for row in rows_of(naming, architecture))) or [""]
    if part is None or part in parts:
        return parts[0] if part is None else part
    there = f"its parts are {', '.join(parts)}" if any(parts) else "it has one part; leave it out"
    raise CheckpointError(f"{where} ({architecture}) has no part {part!r}; {there}")


def find_layout(reader: Reader) -> tuple[Layout, str]:
    """Find the row of the table for a checkpoint, and the prefix that its tensors carry.

    Parameters
    ----------
    reader : Reader
        Of an architecture that the table has, or nothing is found.

    Returns
    -------
    layout : Layout
    prefix : str

    Raises
    ------
    CheckpointError
        If no row has the architecture, with those that do, or if a row has it but its tensors are
        not there.
    """
    naming, architecture, part = reader.naming, reader.architecture, reader.part
    # One layer that has everything decides.
    layers, where = reader.hyperparameters.stored_layers, reader.where
    names = {*reader.names}
    if reader.quantisation:
        # The names of what stands in for a weight say more than that the weight is missing.
        names |= {name.rsplit(".", 1)[0] + ".weight" for name in reader.names}
    rows = rows_of(naming, architecture, part)
    if not rows:
        known = sorted(
            {name for row in LAYOUTS if row.naming == naming for name in row.architectures}
        )
        raise CheckpointError(
            f"{where} has the architecture {architecture!r}, whose layout of value and output "
            f"weights is not known. Known with {naming} tensor names: {', '.join(known)}. To add "
            "one, add a row to scaled_idempotence/checkpoints/layouts.py: it says which tensor "
            "holds the values, how they are fused, which holds the output projection, and which "
            "norms stand before and after"
        )
    # Rows of the same values differ in their norms: those whose norm is there go first.
    for with_norm in (True, False):
        for row in rows:
            needed = [row.value.key]
            if with_norm and row.norm_before is not None and row.norm_before.weight:
                needed.append(row.norm_before.weight)
            for prefix in row.prefixes:
                templates = [prefix + template for template in needed]
                if any(all(t.format(layer=n) in names for t in templates) for n in layers):
                    return row, prefix
    layer = layers[0]
    keys = dict.fromkeys(row.value.key.format(layer=layer) for row in rows)
    prefixes = dict.fromkeys(prefix for row in rows for prefix in row.prefixes if prefix)
    others = [row for row in rows_of(naming, architecture) if row.part != part]
    there = [
        row.part
        for row in others
        if any(p + row.value.key.format(layer=layer) in names for p in row.prefixes)
    ]
    near = sorted(name for name in names if "att" in name and f".{layer}." in name)[:8]
    raise CheckpointError(
        f"{where} holds no tensor named {' or '.join(keys)}"
        + (f", alone or after {' or '.join(prefixes)}" if prefixes else "")
        + f", where {architecture} keeps {f'the values of its {part}' if part else 'its values'}. "
        + (f"It holds the {there[0]}: pass part={there[0]!r}. " if there else "")
        + f"Its attention tensors there: {', '.join(near) or 'none'}"
    )


def likely_layouts(naming: Naming) -> list[Layout]:
    """Give the rows that an unlisted model may be assumed to follow, without their norms.

    Only separate matrices, and [Q | K | V] where the name says so and the shapes of grouped
    queries leave one reading: a fused square tells by nothing how its rows are ordered.

    Parameters
    ----------
    naming : {"transformers", "gguf"}

    Returns
    -------
    list of Layout
    """
    certain: dict[tuple[str, str], Layout] = {}
    for row in LAYOUTS:
        if row.naming == naming and isinstance(row.value, Linear) and not row.part:
            separate = isinstance(row.value.order, Separate)
            if separate or row.value.weight == SELF + "qkv_proj.weight":
                certain.setdefault((row.value.weight, row.output.weight), row)
    return list(certain.values())


def assume_layout(reader: Reader) -> tuple[Layout, str] | None:
    """Find a row whose tensor names and shapes a checkpoint of no listed architecture fits.

    Parameters
    ----------
    reader : Reader

    Returns
    -------
    layout : Layout
    prefix : str
        Or None instead of both, if no row fits every layer.
    """
    h = reader.hyperparameters

    def fits(layout: Layout, prefix: str) -> bool:
        for layer in h.layers:
            for template, (shape, _) in expected_shapes(layout, h, layer, "raw").items():
                name = h.named(prefix + template, layer)
                if name not in reader.names or reader.shape(name) != shape:
                    return False
        return True

    if h.n_heads % h.n_value_heads:
        return None
    for layout in likely_layouts(reader.naming):
        for prefix in layout.prefixes:
            if fits(layout, prefix):
                return layout, prefix
    return None
