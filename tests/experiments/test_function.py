import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import scaled_idempotence as si
from scaled_idempotence import plots
from scaled_idempotence.checkpoints.module import LiveModule
from scaled_idempotence.errors import ScaledIdempotenceError
from scaled_idempotence.experiments import function as f
from scaled_idempotence.running.text import Segments
from tests.running import models as tiny

# llama's norms compute in float32, whatever the model's type.
TOLERANCE = 1e-6


def with_mask(tokens):
    return Segments(tokens, torch.zeros(tokens.shape[1], dtype=torch.bool), 3, "random tokens")


def run(module, text, **options):
    options = {"n_segments": 4, "single_segments": 2, "progress": False} | options
    return si.function(si.open_model(module), text, **options)


def effect(result, group, kind, scope="together"):
    rows = result.effects
    (row,) = rows[
        (rows.scope == scope) & (rows.group == group) & (rows.intervention == kind)
    ].itertuples()
    return row


@pytest.fixture(scope="module")
def dependent():
    return run(tiny.planted(reads_return=True), tiny.planted_texts(4), draws=2)


@pytest.fixture(scope="module")
def independent():
    return run(tiny.planted(reads_return=False), tiny.planted_texts(4))


def test_a_planted_dependence_is_found_and_is_as_large_as_proven(dependent):
    """Head 0, the ordinary one, is in "matched"; see `tiny.planted` for the proof."""
    trained, member = (tiny.planted_loss(True, t) for t in (0, 1))
    found = effect(dependent, "matched", "projected")
    assert found.base == pytest.approx(trained, abs=TOLERANCE)
    assert found.delta == pytest.approx(member - trained, abs=TOLERANCE)
    assert found.delta < -0.05
    table = f.contrasts(dependent).set_index(["group", "control"])
    assert table.loc[("matched", "random"), "high"] < 0
    # Head 1 is exact already: nothing to project, in a model that would notice.
    assert abs(effect(dependent, "strong", "projected").delta) < TOLERANCE
    for t in f.DOSES:
        curve = dependent.dose[(dependent.dose.path == "algebra") & (dependent.dose.t == t)]
        point = curve[curve.group == "matched"].value.item()
        assert point == pytest.approx(tiny.planted_loss(True, t), abs=TOLERANCE)


def test_where_there_provably_is_no_dependence_none_is_found(independent):
    found = effect(independent, "matched", "projected")
    assert found.base == pytest.approx(tiny.planted_loss(False, 0), abs=TOLERANCE)
    assert abs(found.delta) < TOLERANCE
    # The same head matters to this model, and so do random changes of the same size.
    assert abs(effect(independent, "matched", "zeroed").delta) > 0.05
    assert abs(effect(independent, "matched", "random").delta) > 1e-4
    # Random changes of the return core, too, are invisible to it.
    assert abs(effect(independent, "matched", "random return").delta) < TOLERANCE
    curve = independent.dose[independent.dose.group == "matched"]
    assert curve[curve.path == "algebra"].delta.abs().max() < TOLERANCE


def test_dose_zero_is_nothing_and_dose_one_is_exact(dependent):
    dose = dependent.dose
    zero, one = dose[dose.t == 0], dose[(dose.t == 1) & (dose.path == "algebra")]
    assert (zero.delta == 0).all()
    assert (zero.relative_change == 0).all()
    assert one.closure.to_numpy() == pytest.approx(1, abs=1e-9)


def test_tables_agree_with_each_other(dependent):
    effects, segments = dependent.effects, dependent.segments
    assert set(segments.draw[segments.intervention == "random"]) == {0, 1}
    assert (segments.draw[~segments.intervention.str.startswith("random")] == -1).all()
    means = segments.groupby(f.KEYS, sort=False).delta.mean().to_numpy()
    assert means == pytest.approx(effects.delta.to_numpy())
    assert ((effects.low <= effects.delta + 1e-12) & (effects.delta <= effects.high + 1e-12)).all()
    sizes = effects[effects.intervention != "zeroed"]
    for _, part in sizes.groupby(["scope", "group", "layer", "head"]):
        assert part.relative_change.to_numpy() == pytest.approx(part.relative_change.iloc[0])
    assert effects[effects.intervention == "zeroed"].relative_change.to_numpy() == pytest.approx(1)


def test_the_first_order_effect_is_the_slope_of_the_proven_loss(dependent):
    rows = dependent.segments
    rows = rows[(rows.group == "matched") & (rows.intervention == "projected")]
    slope = (tiny.planted_loss(True, 1e-5) - tiny.planted_loss(True, -1e-5)) / 2e-5
    assert rows.first_order.to_numpy() == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize("maker", [tiny.llama, tiny.gpt2, tiny.bert])
def test_the_first_order_effect_is_that_of_small_changes(maker):
    module = maker()
    wanted = [parameter.requires_grad for parameter in module.parameters()]
    running = si.run_model(si.open_model(module))
    meter = f.Meter(running, with_mask(tiny.tokens()))
    generator = torch.Generator().manual_seed(0)
    for head in ((0, 1), (1, 3)):
        weights = running.projections[head[0]].weights(head[1])
        change = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        ahead, behind = (meter.measure({head: t * change}, 1) for t in (0.01, -0.01))
        assert meter.first_order({head: change}, 1) == pytest.approx(
            (ahead - behind) / 0.02, rel=0.02, abs=1e-4
        )
    assert [parameter.requires_grad for parameter in module.parameters()] == wanted


def test_the_control_narrows_and_keeps_the_mean():
    result = run(tiny.planted(reads_return=True), tiny.planted_texts(4), draws=90)
    rows = result.segments[result.segments.intervention == "random"]
    (one,) = {len(part) for _, part in rows[rows.scope == "single"].groupby(["group", "segment"])}
    assert one == 90  # one head at a time, all draws are made, and nothing is taken off
    assert (rows.delta == rows.value - rows.base)[rows.scope == "single"].all()
    rows = rows[(rows.scope == "together") & (rows.group == "matched")]
    assert len(rows) == 4 * 30
    plain = rows.value - rows.base
    assert rows.delta.to_numpy() == pytest.approx((plain - rows.first_order).to_numpy())
    assert rows.delta.std() < 0.7 * plain.std()
    assert abs(rows.first_order.mean()) < 4 * rows.first_order.std() / len(rows) ** 0.5


def test_all_heads_together_have_twice_the_draws_and_an_output_change_all_of_them():
    def draws(module):
        rows = run(module, with_mask(tiny.tokens())).segments
        rows = rows[(rows.scope == "together") & (rows.intervention == "random")]
        return rows.groupby("group").draw.nunique().to_dict()

    assert draws(tiny.bert()) == {"highest": 1, "matched": 1, "lowest": 1, "all": 2}
    assert set(draws(tiny.bert(transformers.BertModel)).values()) == {3}


@pytest.fixture(scope="module")
def masked():
    module = tiny.bert()
    before = tiny.weights_of(module)
    result = run(module, with_mask(tiny.tokens()), threshold=0.99)
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    return module, result


def test_an_encoder_is_measured_by_its_masked_token_loss(masked):
    module, result = masked
    tokens, places = with_mask(tiny.tokens()).masked()
    with torch.inference_mode():
        logits = module(tokens).logits
    labels = tiny.tokens().masked_fill(~places, -100)
    losses = [
        torch.nn.functional.cross_entropy(one, label).item()
        for one, label in zip(logits, labels, strict=True)
    ]
    together = result.segments[result.segments.intervention == "zeroed"].head(4)
    assert together.base.to_numpy() == pytest.approx(losses, rel=1e-5)
    assert result.effects.attrs["measure"] == "masked-token loss"
    assert "highest" in set(result.effects.group)


def test_without_a_mask_token_or_a_head(masked):
    module, _ = masked
    assert "no mask token" in run(module, tiny.tokens()).effects.attrs["reason"]
    result = run(tiny.bert(transformers.BertModel), tiny.tokens())
    assert result.effects.attrs["measure"] == "output change"
    assert (result.effects.base == 0).all()
    assert (result.effects.delta > 0).all()


def test_the_output_change_is_its_definition():
    module = tiny.bert(transformers.BertModel)
    result = run(module, tiny.tokens())
    with torch.inference_mode():
        before = module(tiny.tokens()[:1]).last_hidden_state.double()
        for layer in module.encoder.layer:
            layer.attention.output.dense.weight.zero_()
        after = module(tiny.tokens()[:1]).last_hidden_state.double()
    expected = ((after - before).square().sum() / before.square().sum()).item()
    rows = result.segments
    rows = rows[(rows.group == "all") & (rows.intervention == "zeroed") & (rows.segment == 0)]
    assert rows.delta.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("maker", [tiny.llama, tiny.gpt2, tiny.bert])
def test_skipping_the_layers_below_is_exact(maker):
    module = maker()
    model = si.open_model(module)
    running = si.run_model(model)
    meter = f.Meter(running, with_mask(tiny.tokens()))
    assert meter.skips
    last = len(running.projections) - 1
    changes = {(last, 1): -running.projections[last].weights(1).double()}
    quick = meter.measure(changes, 2)
    meter.skips = False
    assert meter.measure(changes, 2) == quick
    assert quick != meter.base[2]


def test_a_model_whose_layers_pass_more_than_outputs_runs_whole(monkeypatch):
    module = tiny.llama()
    running = si.run_model(si.open_model(module))
    first = module.model.layers[0]
    plain = type(first).forward
    # The other layers use what the first one leaves behind in this run.
    state = {}

    def leaving(self, hidden, *args, **kwargs):
        if self is first:
            state["extra"] = 0.1
        elif self is module.model.layers[-1]:
            hidden = hidden + state.pop("extra", 0.0)
        return plain(self, hidden, *args, **kwargs)

    monkeypatch.setattr(type(first), "forward", leaving)
    assert not f.Meter(running, with_mask(tiny.tokens(1))).skips


def test_factors_that_the_model_does_not_run_on_are_refused(tmp_path):
    config = transformers.Gemma2Config(
        vocab_size=50, hidden_size=24, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=64,
    )  # fmt: skip
    module = tiny.randomised(transformers.Gemma2ForCausalLM(config))
    folded = si.open_model(module, norm="folded")
    result = si.function(folded, tiny.tokens(), results_dir=tmp_path, progress=False)
    assert not result.measured
    assert "norm='raw'" in result.effects.attrs["reason"]
    written = si.load_result(tmp_path, folded.label, "function")
    assert len(written) == 0
    assert list(written.columns) == list(result.effects.columns)
    assert si.activations(folded, tiny.tokens(), progress=False).attrs["measured"]


def test_a_repeated_run_gives_the_same_bits(dependent, tmp_path):
    module = tiny.planted(reads_return=True)
    again = si.function(
        si.open_model(module), tiny.planted_texts(4), n_segments=4, single_segments=2, draws=2,
        results_dir=tmp_path, progress=False,
    )  # fmt: skip
    for field in dataclasses.fields(again):
        one, other = getattr(again, field.name), getattr(dependent, field.name)
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    label = si.open_model(module).label
    for name in ("function", "function_segments", "dose"):
        assert len(si.load_result(tmp_path, label, name))


def test_figures(dependent, masked):
    for result in (dependent, masked[1]):
        assert plots.interventions(result.effects)
        assert plots.single_heads(result.effects)
        figure = plots.dose_response(result.dose)
        assert len(figure.axes) >= 4


def test_smollm2_runs_on_the_factors_that_are_read(running_smollm2):
    """What transformers takes off the quantisation is what the package's own reader does."""
    running, model = running_smollm2.running, running_smollm2.model
    live = si.OVModel("live", LiveModule(running.module), "raw")
    for position in range(0, len(model), 5):
        for name in ("O", "V"):
            ours, theirs = getattr(model[position], name), getattr(live[position], name)
            assert (ours - theirs).abs().max() <= 2**-23 * ours.abs().max()


def test_smollm2_loss_and_the_strong_heads(running_smollm2):
    """Section 9: loss 2.857, strong heads projected +0.015, zeroed +0.199 (half the segments)."""
    running, model = running_smollm2.running, running_smollm2.model
    chosen = running_smollm2.segments.first(4)
    meter = f.Meter(running, chosen)
    assert meter.skips
    assert np.mean(list(meter.base.values())) == pytest.approx(2.62, abs=0.15)
    heads = f.RunningHeads(model, running)
    strong = f.choose_groups(heads, model.name, 0.9)["strong"]
    assert len(strong) == 13
    projected = {head: f._change(heads, head, "projected", ()) for head in strong}
    delta = np.mean([meter.measure(projected, n) - meter.base[n] for n in range(4)])
    assert delta == pytest.approx(0.015, abs=0.01)


def test_an_interrupted_run_goes_on_with_the_next_segment(tmp_path, monkeypatch, dependent):
    module, computed = tiny.planted(reads_return=True), []
    before = tiny.weights_of(module)
    plain = f.Meter

    def meter(running, chosen, wanted):
        if wanted == [2] and computed == [0, 1]:
            raise KeyboardInterrupt
        computed.extend(wanted)
        return plain(running, chosen, wanted)

    monkeypatch.setattr(f, "Meter", meter)

    def study():
        return run(module, tiny.planted_texts(4), draws=2, results_dir=tmp_path)

    with pytest.raises(KeyboardInterrupt):
        study()
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    computed.append("interrupted")
    result = study()
    assert computed == [0, 1, "interrupted", 2, 3]
    for field in dataclasses.fields(result):
        one, other = getattr(result, field.name), getattr(dependent, field.name)
        pd.testing.assert_frame_equal(one, other, check_exact=True)
        # Their weights differ where nothing reads them.
        own = one.attrs["identity"] | {"weights": other.attrs["identity"]["weights"]}
        same = {"weights": "", "identity": own}
        assert one.attrs | same == other.attrs | {"weights": ""}


def test_segments_of_another_text_are_not_taken(tmp_path, monkeypatch):
    module, seen = tiny.planted(reads_return=True), []
    plain = f.Meter

    def meter(running, chosen, wanted):
        seen.extend(wanted)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return plain(running, chosen, wanted)

    monkeypatch.setattr(f, "Meter", meter)
    texts = tiny.planted_texts(4)
    with pytest.raises(KeyboardInterrupt):
        run(module, texts, results_dir=tmp_path)
    run(module, texts.flip(0), results_dir=tmp_path)
    assert seen == [0, 1, 0, 1, 2, 3]


def test_threads_do_not_see_each_others_changes(dependent):
    """They share one running model, and every change is made in place."""
    module = tiny.planted(reads_return=True)
    with ThreadPoolExecutor(4) as pool:
        result = run(module, tiny.planted_texts(4), draws=2, executor=pool)
    pd.testing.assert_frame_equal(result.segments, dependent.segments, check_exact=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draws": 0}, "draws is 0, expected at least 1"),
        ({"single_heads": -1}, "single_heads is -1"),
        ({"single_segments": 0}, "single_segments is 0"),
        ({"n_segments": 0}, "got 0 segments of 256 tokens"),
        ({"length": 1}, "got 8 segments of 1 tokens"),
    ],
)
def test_numbers_that_are_too_small_are_told(options, said):
    model = si.open_model(tiny.llama())
    with pytest.raises(ScaledIdempotenceError, match=said):
        si.function(model, tiny.tokens(), progress=False, **options)


def test_an_encoder_needs_room_beside_its_special_tokens():
    with pytest.raises(ScaledIdempotenceError, match="no room beside 2 special ones"):
        si.activations(si.open_model("minilm-l6"), length=2, progress=False)
