"""Every figure draws for every kind of value sharing, shows what its table holds, and is closed."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import scaled_idempotence as si
from scaled_idempotence import plots
from scaled_idempotence.experiments.factorial import layer_interactions
from scaled_idempotence.experiments.sharing import product_tables

MODELS = ("smollm2-135m", "gemma-3-270m", "minilm-l6")


@pytest.mark.parametrize("name", MODELS)
def test_survey_figures(surveys, name):
    heads = surveys(name)
    for draw in (
        plots.closure_map,
        plots.closure_by_layer,
        plots.closure_distribution,
        plots.threshold_sweep,
        plots.gain_and_sign,
    ):
        assert isinstance(draw(heads), Figure)
    # A figure left open would be shown twice in a notebook, and kept in memory.
    assert plt.get_fignums() == []


def test_the_map_frames_the_strong_heads_and_no_others(surveys):
    heads = surveys("smollm2-135m")
    axes = plots.closure_map(heads, 0.9).axes[0]
    frames = {patch.get_xy() for patch in axes.patches}
    strong = heads[heads.closure >= 0.9]
    assert frames == set(zip(strong.layer, strong["head"], strict=True))
    assert plots.closure_map(heads, 0.99).axes[0].patches[:] == []


def test_the_control_is_drawn_only_where_it_exists(surveys):
    def labels(name):
        axes = plots.threshold_sweep(surveys(name)).axes[0]
        return [text.get_text() for text in axes.get_legend().get_texts()]

    assert "wrong $V$" in labels("minilm-l6")
    assert "wrong $V$" not in labels("gemma-3-270m")


@pytest.mark.parametrize("name", ["minilm-l6", "gemma-3-270m"])
def test_the_other_figures(name):
    model = si.open_model(name)
    support = si.support(model, progress=False)
    figures = [
        plots.latent_against_closure(support),
        plots.response_plane(support),
        plots.response_plane(support, threshold=0.5),
        plots.interaction_by_layer(
            layer_interactions(si.factorial(model, progress=False)).fillna(0)
        ),
    ]
    layer = model[0]
    K, cosines, _, _ = si.principal_coordinates(layer.O, layer.V[layer.value_head])
    figures.append(plots.core_anatomy({"head": (K[0].numpy(), cosines[0].numpy())}))
    closures = support.closure[: len(cosines)].to_numpy()
    figures.append(plots.principal_angles(cosines.numpy(), closures, 0.1, threshold=0.1))
    result = si.sharing(model, threshold=0.6, progress=False)
    figures.append(plots.anchors(result.anchors, 0.6))
    figures.append(plots.multiplication_tables(product_tables(layer), {0}))
    if len(result.pairs):
        figures.append(plots.gain_inheritance(result.pairs, si.paper.SHARING))
        figures.append(plots.bound_against_residual(result.pairs))
    assert all(isinstance(figure, Figure) for figure in figures)
    assert plt.get_fignums() == []


def test_scramble_figures():
    table = si.orientation(si.open_model("minilm-l6"), progress=False)
    assert len(plots.trained_against_scrambled(table).axes) == 2
    plots.closure_against_null(table)
    figure = plots.null_distribution({"head": np.random.default_rng(0).chisquare(1, 50)})
    x, y = figure.axes[0].lines[0].get_data()
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) >= 0).all()
