import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.checkpoints.model import LayerFactors
from scaled_idempotence.experiments import factorial as f
from scaled_idempotence.experiments import orientation as o
from scaled_idempotence.experiments import support as u
from scaled_idempotence.linalg.principal import core_closure, principal_coordinates

# Measured for this project with an independent program: median closure of signed permutations and
# of Haar rotations, shares of heads above them, layers.
PUBLISHED = {
    "smollm2-135m": (3.8e-4, 6.2e-4, 0.974, 0.967, 30),
    "gemma-3-270m": (1.4e-4, 2.3e-4, 0.986, 0.958, 18),
    "minilm-l6": (7.3e-4, 1.8e-3, 0.972, 0.944, 6),
}


@pytest.fixture(scope="module")
def orientations():
    made = {}

    def get(name):
        if name not in made:
            made[name] = si.orientation(si.open_model(name), progress=False)
        return made[name]

    return get


@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_models_give_the_published_figures(orientations, name):
    permutation, haar, permutation_wins, haar_wins, layers = PUBLISHED[name]
    table = orientations(name)
    figures = o.orientation_summary(table)
    n = figures.heads
    # Sampled with other seeds: a win rate has binomial error, and the logarithm of a head's
    # median over draws spreads by about 1.3, of which a median over heads has 1.25 / sqrt(n).
    for got, published in ((figures.permutation, permutation), (figures.haar, haar)):
        assert abs(np.log(got / published)) < 3 * np.sqrt(2) * 1.25 * 1.3 / np.sqrt(n)
    for got, published in (
        (figures.permutation_wins, permutation_wins),
        (figures.haar_wins, haar_wins),
    ):
        error = np.sqrt(2 * published * (1 - published) / n)
        assert abs(got - published) < 3 * error
    assert figures.permutation_layers == figures.haar_layers == figures.layers == layers
    assert figures.highest < 0.85
    assert table.singular_value_error.max() < 1e-12
    assert table.norm_error.max() < 1e-12
    assert (table["rank"] == si.open_model(name).d_head).all()


def test_the_closed_form_is_the_mean_of_haar_scrambles_on_smollm2():
    table = si.orientation(
        si.open_model("smollm2-135m"), permutation_draws=1, haar_draws=64, progress=False
    )
    ratio = table.haar_mean / table.null
    assert 0.95 < ratio.median() < 1.05
    # Each head's mean of 64 chi-square variables spreads by sqrt(2/64).
    assert 0.7 < ratio.std() / np.sqrt(2 / 64) < 1.3


def test_the_interaction_is_positive_and_its_control_is_not():
    table = si.factorial(si.open_model("smollm2-135m"), progress=False)
    layers = f.layer_interactions(table)
    assert (layers.interaction > 0).sum() >= 29
    assert layers.control_interaction.abs().max() < 1e-2 * layers.interaction.median()
    control = table.control_interaction
    assert abs(control.mean()) < 3 * control.std() / np.sqrt(len(control))


def test_mqa_has_no_donors_and_says_so():
    table = si.factorial(si.open_model("gemma-3-270m"), progress=False)
    assert len(table) == 72
    assert table.drop(columns=["layer", "head"]).isna().all(axis=None)


def random_layer(groups, per_group, seed=0, d=30, r=4):
    rng = np.random.default_rng(seed)
    H = groups * per_group
    O = torch.from_numpy(rng.normal(size=(H, d, r)))
    V = torch.from_numpy(rng.normal(size=(groups, d, r)))
    return LayerFactors(3, O, V, torch.arange(H) // per_group)


@pytest.mark.parametrize(("groups", "per_group"), [(4, 1), (3, 2), (2, 3)])
def test_donors_are_whole_groups_with_the_slot_held(groups, per_group):
    layer = random_layer(groups, per_group)
    K, cosines, _, _ = principal_coordinates(layer.O, layer.V[layer.value_head])
    table = f.factorial_layer(layer)
    for h in range(groups * per_group):
        donors = [g * per_group + h % per_group for g in range(groups)]
        own = core_closure(K[h], cosines[h]).item()
        cores = np.mean([core_closure(K[i], cosines[h]).item() for i in donors])
        supports = np.mean([core_closure(K[h], cosines[j]).item() for j in donors])
        both = np.mean([core_closure(K[i], cosines[j]).item() for i in donors for j in donors])
        row = table.iloc[h]
        assert row.own == pytest.approx(own)
        assert row.interaction == pytest.approx(own - cores - supports + both)


def test_a_planted_pairing_is_found_and_its_control_is_not():
    """Cores that suit their own angles only: K D is a multiple of the identity."""
    rng = np.random.default_rng(0)
    O, V = [], []
    for _ in range(5):
        basis = torch.from_numpy(np.linalg.qr(rng.normal(size=(60, 8)))[0])
        c = torch.from_numpy(rng.permutation(np.linspace(0.99, 0.05, 4)))
        V.append(basis[:, :4] * c + basis[:, 4:] * (1 - c**2).sqrt())
        O.append(basis[:, :4] / c)
    layer = LayerFactors(0, torch.stack(O), torch.stack(V), torch.arange(5))
    table = f.factorial_layer(layer)
    assert (table.own > 1 - 1e-10).all()
    assert table.control_interaction.abs().max() < 0.5


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_factorization_is_exact_on_whole_models(surveys, name):
    table = si.support(si.open_model(name), progress=False)
    assert table.identity_error.max() < 1e-10
    pd.testing.assert_series_equal(table.closure, surveys(name).closure, rtol=1e-10)
    bounded = ["overlap", "isotropy", "latent_closure"]
    assert table[bounded].min(axis=None) >= 0
    assert table[bounded].max(axis=None) <= 1


def damaged_layer():
    layer = random_layer(2, 2)
    layer.O[0] = 0
    layer.O[3, 2, 1] = torch.nan
    return layer


def test_damaged_heads_are_nan_and_the_others_are_not():
    scrambled = o.orientation_layer(damaged_layer(), "x", 8, 2)
    described = u.support_layer(damaged_layer())
    for table in (scrambled, described):
        values = table.drop(columns=["layer", "head", "random_overlap"], errors="ignore")
        assert values.iloc[[0, 3]].isna().all(axis=None)
        assert values.iloc[[1, 2]].notna().all(axis=None)


def test_results_do_not_depend_on_threads_order_or_batch():
    model = si.open_model("minilm-l6")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = si.orientation(model, progress=False)
        torch.set_num_threads(2)
        two = si.orientation(model, progress=False)
    finally:
        torch.set_num_threads(before)
    pd.testing.assert_frame_equal(one, two, rtol=1e-10, atol=1e-13)
    last = o.orientation_layer(model[5], "minilm-l6", 8, 2)
    rows = two[two.layer == 5].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, last, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_reported_depends_on_the_gauge(seed):
    """O -> O G, V -> V G^-T of each value group, for every column that is about trained heads."""
    layer = random_layer(3, 2, seed, d=24, r=6)
    rng = np.random.default_rng(seed)
    gauge = torch.from_numpy(rng.normal(size=(3, 6, 6)) + 3 * np.eye(6))
    inverse = torch.stack([torch.linalg.inv(g) for g in gauge])
    turned = LayerFactors(
        3, layer.O @ gauge[layer.value_head], layer.V @ inverse.mT, layer.value_head
    )
    for score, options in (
        (u.support_layer, {}),
        (f.factorial_layer, {}),
        (o.orientation_layer, {"name": "x", "permutation_draws": 4, "haar_draws": 2}),
    ):
        one, other = score(layer, **options), score(turned, **options)
        # The control pairs factors of two groups, whose gauges are not each other's.
        columns = [name for name in one if "control" not in name and "error" not in name]
        pd.testing.assert_frame_equal(one[columns], other[columns], rtol=1e-7, atol=1e-9)


def test_the_same_run_gives_the_same_bits():
    model = si.open_model("minilm-l6")
    for experiment in (si.orientation, si.support, si.factorial):
        one, two = (experiment(model, progress=False) for _ in range(2))
        pd.testing.assert_frame_equal(one, two, check_exact=True)
