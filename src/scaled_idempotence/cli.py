"""The command ``scaled-idempotence``: a thin layer over the package's functions."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .errors import ScaledIdempotenceError

app = typer.Typer(
    help="Scaled idempotence of attention OV operators (arXiv:2609.01129), for any model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
output = Console()
errors = Console(stderr=True)

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Name that `models` lists, model folder, .gguf file, or org/name on the hub; "
        "SOURCE#encoder and the like for a part.",
    ),
]
RevisionOption = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")
]
NormOption = Annotated[
    Literal["raw", "folded"],
    typer.Option(help="Stored weights, or with the gains of the norms around attention."),
]
DaskOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Compute on the Dask cluster of this scheduler, such as tcp://10.0.0.1:8786.",
    ),
]


@app.command()
def models() -> None:
    """List the bundled models and the paper's, and whether they are fetched."""
    from .checkpoints.bundled import BUNDLED, DEFAULT_MODEL, cache_folder
    from .checkpoints.registry import MODELS, repo_folder

    table = Table("name", "model", "licence", "fetched")
    for name, model in BUNDLED.items():
        folder = cache_folder() / "models" / name
        fetched = all((folder / file.name).is_file() for file in model.files)
        shown = f"{name} (default)" if name == DEFAULT_MODEL else name
        table.add_row(shown, model.description, model.license, "yes" if fetched else "no")
    output.print(table)
    table = Table("name", "model of the paper, on the Hugging Face hub", "bytes in the cache")
    for name, entry in MODELS.items():
        files = [file for file in repo_folder(entry.repo).rglob("*") if file.is_file()]
        table.add_row(name, entry.description, f"{sum(file.stat().st_size for file in files):,}")
    output.print(table)


@app.command()
def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Bundled models, or models on the hub.")
    ],
    norm: NormOption = "raw",
    revision: RevisionOption = None,
) -> None:
    """Bring models to the cache folder; what is there whole is not fetched again."""
    from .checkpoints import bundled, registry
    from .checkpoints.opening import open_model

    for name in names:
        # Without a slash it can only be a short name, and an unknown one is told with the known.
        if name in registry.MODELS or "/" in name:
            model = open_model(name, revision=revision, norm=norm)
            model.fetch()
            output.print(f"{escape(model.label)}: {model.sizes()[0]:,} bytes", soft_wrap=True)
            output.print(f"  {model.weights_id}", soft_wrap=True)
            continue
        path = bundled.fetch(name)
        output.print(f"{name}: {escape(str(path))}", soft_wrap=True)
        output.print(f"  licence of the weights: {bundled.BUNDLED[name].license}", soft_wrap=True)


@app.command()
def inspect(
    model: ModelArgument, norm: NormOption = "raw", revision: RevisionOption = None
) -> None:
    """Show the layout found in a checkpoint and what a survey of it would read."""
    from .checkpoints.opening import open_model

    opened = open_model(model, revision=revision, norm=norm)
    read, total = opened.sizes()
    layout = opened.layout
    norms = {"before attention": layout.norm_before, "after it": layout.norm_after}
    gains = [
        f"{place}: {spec.title}" + (f", {spec.weight}" if spec.weight else "")
        for place, spec in norms.items()
        if spec is not None
    ]
    if opened.norm_remark:
        gains.append(opened.norm_remark)
    numbers = ""
    if opened.layers != tuple(range(opened.n_layers)):
        numbers = f" (numbers {', '.join(map(str, opened.layers))})"
    table = Table(show_header=False, title=opened.label)
    table.add_row("source", escape(opened.source))
    table.add_row("weights", opened.weights_id)
    table.add_row(
        "architecture",
        f"{opened.architecture}{f', its {opened.part}' if opened.part else ''}: layout of "
        f"{layout.family}, {layout.naming} tensor names",
    )
    table.add_row("topology", opened.topology)
    table.add_row(
        "shapes",
        f"{opened.n_layers} layers{numbers}, {opened.n_heads} query heads, "
        f"{opened.n_value_heads} value heads, r = {opened.d_head}, d = {opened.d_model}",
    )
    values = opened.slices()[0]
    rows = "" if values.rows is None else f", rows {values.rows[0]}-{values.rows[1] - 1} of it"
    table.add_row("values", escape(f"{layout.value.key}\n{layout.value.title}{rows}"))
    transposed = "\ntransposed" if layout.output.transposed else ""
    table.add_row("outputs", escape(layout.output.weight + transposed))
    table.add_row("norms", escape("\n".join(gains) or "none"))
    if opened.remark:
        table.add_row("remarks", escape(opened.remark))
    table.add_row("stored as", ", ".join(opened.dtypes()))
    table.add_row("would be read", f"{read:,} of {total:,} bytes ({read / total:.1%})")
    if opened.license:
        table.add_row("licence", opened.license)
    output.print(table)


@app.command()
def survey(
    model: ModelArgument,
    norm: NormOption = "raw",
    revision: RevisionOption = None,
    threshold: Annotated[float, typer.Option(help="Closure of a strong head.")] = 0.9,
    top: Annotated[int, typer.Option(help="Heads to list, by closure.")] = 15,
    out: Annotated[Path | None, typer.Option(help="Write all heads as .parquet or .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the layer x head map (.png, .svg, .pdf).")
    ] = None,
    dask: DaskOption = None,
) -> None:
    """Score the closure of every head of a model."""
    from .checkpoints.opening import open_model
    from .compute.executors import dask_executor
    from .compute.results import check_table_path, write_table
    from .experiments import survey as experiment

    if out is not None:
        check_table_path(out)  # before the work, not after it
    executor = dask_executor(dask) if dask else None
    heads = experiment.survey(open_model(model, revision=revision, norm=norm), executor=executor)
    figures = experiment.summary(heads, threshold)
    at = f"@{revision}" if revision else ""
    table = Table(title=f"{heads.attrs['model']}{at} ({norm}): {len(heads)} heads")
    columns = {
        "layer": "d",
        "head": "d",
        "closure": ".4f",
        "alpha": ".4g",
        "return_gain": ".4g",
        "wrong_v_closure": ".2g",
        "copying_score": ".3f",
        "effective_rank": ".1f",
    }
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in heads.nlargest(top, "closure").itertuples():
        table.add_row(*(format(getattr(row, name), spec) for name, spec in columns.items()))
    output.print(table)
    count = f"{figures.strong:.0f} heads ({figures.strong_share:.2%})"
    if figures.strong:
        count += f", {figures.negative_alpha:.0%} of them with negative alpha"
    output.print(f"P >= {threshold:g}: {count}")
    output.print(
        f"quantiles of P at 0, 10, 50, 90, 100%: {figures['min']:.2g}, {figures.q10:.4f}, "
        f"{figures['median']:.4f}, {figures.q90:.4f}, {figures['max']:.4f}",
        soft_wrap=True,
    )
    if heads.wrong_v_closure.notna().any():
        output.print(f"wrong V: median {figures.wrong_v_median:.2g}, max {figures.wrong_v_max:.3f}")
    else:
        output.print("wrong V: does not apply, each layer has one value head")
    if figures.undefined:
        output.print(f"no score for {figures.undefined:.0f} heads; column reason says why")
    if out is not None:
        write_table(heads, out)
        output.print(f"wrote {escape(str(out))}", soft_wrap=True)
    if figure is not None:
        import matplotlib

        matplotlib.use("agg")
        from . import plots

        plots.set_theme()
        plots.closure_map(heads, threshold).savefig(figure, dpi=160)
        output.print(f"wrote {escape(str(figure))}", soft_wrap=True)


@app.command()
def train(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="live-mha, live-gqa, live-mqa. Default: all."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of training; the recipe's own if not given.")
    ] = None,
    scale: Annotated[int, typer.Option(help="Factor of the width and the number of heads.")] = 1,
) -> None:
    """Train the live lineages, or find them in the cache; an interrupted one goes on."""
    from .lineages.live import LIVE, train_all
    from .lineages.training import finished

    runs = train_all(names or list(LIVE), steps=steps, scale=scale)
    table = Table("lineage", "steps", "held-out loss, first and last", "folder")
    for name, run in runs.items():
        losses = finished(run)["losses"]
        held_out = list(losses["held_out"].values())
        table.add_row(
            name,
            str(len(losses["training"])),
            f"{held_out[0]:.3f}, {held_out[-1]:.3f}",
            escape(str(run)),
        )
    output.print(table)


@app.command()
def run(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Names that `models` lists, model folders, .gguf files, or org/name on the hub.",
        ),
    ],
    notebook: Annotated[
        list[str] | None,
        typer.Option("--notebook", "-n", help="Notebook to run, by name; repeat. Default: all."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for executed/, results/ and failed/.")] = Path(
        "."
    ),
    norm: NormOption = "raw",
    revision: RevisionOption = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Notebook parameter; repeat."),
    ] = None,
    force: Annotated[
        bool, typer.Option(help="Make pages and tables anew that are up to date.")
    ] = False,
    dask: DaskOption = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Notebooks at a time, each its own process.")
    ] = 1,
    all_models: Annotated[
        bool, typer.Option(help="Also the notebooks about all models, such as the scoreboard.")
    ] = False,
) -> None:
    """Execute the notebooks for each model with papermill."""
    from .errors import NotebookError
    from .publish.batch import run as run_batch

    parameters = {}
    for pair in parameter or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise NotebookError(f"parameter {pair!r}: expected NAME=VALUE")
        parameters[name] = value
    outcomes = run_batch(
        models,
        notebooks=notebook or (),
        out=out,
        norm=norm,
        revision=revision,
        parameters=parameters,
        force=force,
        dask=dask,
        jobs=jobs,
        all_models=all_models,
    )
    table = Table("model", "notebook", "status", "seconds")
    for outcome in outcomes:
        table.add_row(
            escape(outcome.model), outcome.notebook, outcome.status, f"{outcome.seconds:.1f}"
        )
    output.print(table)
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    for outcome in failures:
        errors.print(
            f"{escape(outcome.model)} {outcome.notebook} failed in {escape(outcome.message)}"
            + (
                f"\n  the notebook as far as it came: {escape(str(outcome.path))}"
                if outcome.path
                else ""
            ),
            soft_wrap=True,
        )
    if failures:
        raise typer.Exit(1)


@app.command()
def results(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Models with whose weights tables are compared."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that holds results/.")] = Path("."),
    norm: NormOption = "raw",
    revision: RevisionOption = None,
) -> None:
    """Say which tables are current, which are stale and why, and which are of no experiment."""
    from .checkpoints.opening import open_model
    from .publish.inventory import inventory

    folder = out / "results"
    if not folder.is_dir():
        raise ScaledIdempotenceError(f"there is no folder {folder}; `run --out` makes one")
    opened = [open_model(name, norm=norm, revision=revision) for name in models or ()]
    table = Table("model", "table", "status", "reason")
    for row in inventory(folder, opened).itertuples():
        table.add_row(escape(row.model), row.table, row.status, escape(row.reason))
    output.print(table)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command; errors that are meant for people are shown without a traceback."""
    # As an exception, a signal passes what ends children and takes unfinished files away.
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, _end)
    try:
        app()
    except ScaledIdempotenceError as error:
        errors.print(f"error: {escape(str(error))}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
