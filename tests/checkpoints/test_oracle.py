"""The layouts against transformers' own forward pass, for every listed architecture.

With one token the softmax is 1, so an attention module's output is exactly ``sum_h T_h x`` and
biases, and the input of its output projection holds ``V_g(h)^T x`` head by head. Biases are no
part of ``T``: they are zero while the model runs, whatever the files say.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.checkpoints import finding, layouts, storage
from tests.checkpoints import tiny
from tests.checkpoints.architectures import CASES, model_type


@dataclass
class Run:
    """What one token left in one layer, in float64."""

    block_input: torch.Tensor | None
    attention_input: torch.Tensor
    heads: torch.Tensor
    written: torch.Tensor
    projection: torch.Tensor  # what the output projection makes of each unit vector
    block_output: torch.Tensor | None


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Give the folder of a case's saved model, and what its layers did; made once each."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            model = tiny.save(name, folder)
            made[name] = folder, record(model, name)
        return made[name]

    return get


@torch.no_grad()
def record(model, name) -> dict[int, Run]:
    case = CASES[name]
    for key, parameter in model.named_parameters():
        if key.endswith("bias") and "relative" not in key:
            parameter.zero_()
        if key.endswith("sinks"):  # a share of attention that goes nowhere
            parameter.fill_(-1e9)
        if model_type(name) == "qwen3_next" and "self_attn.q_proj" in key:
            parameter.zero_()  # the gate is then 1/2 for every token
    modules = dict(model.named_modules())
    seen = {}

    def keep(key, take):
        def hook(module, args, kwargs, output):
            value = take(args[0] if args else kwargs["hidden_states"], output)
            seen.setdefault(key, value.detach().double().flatten())

        return hook

    with contextlib.ExitStack() as stack:
        for layer in case.layers:
            number = case.same_layer.get(layer, layer)
            for key, template, take in (
                ("block_input", case.before, lambda before, after: before),
                ("attention_input", case.reader, lambda before, after: before),
                ("heads", case.output, lambda before, after: before),
                ("written", case.output, lambda before, after: after),
                ("block_output", case.after, lambda before, after: after),
            ):
                if template:
                    module = modules[template.format(number)]
                    handle = module.register_forward_hook(
                        keep((layer, key), take), with_kwargs=True
                    )
                    stack.callback(handle.remove)
        for key, module in modules.items():
            if key.endswith("embeddings") and CASES[name].kind in ("image", "pair"):
                # Of the class token and the patches, one goes on.
                handle = module.register_forward_hook(lambda m, a, out: out[:, :1])
                stack.callback(handle.remove)
        tiny.run(model, name)
    for layer in case.layers:
        projection = modules[case.output.format(case.same_layer.get(layer, layer))]
        units = torch.eye(seen[layer, "heads"].numel())
        seen[layer, "projection"] = projection(units).double()
    keys = ("block_input", "attention_input", "heads", "written", "projection", "block_output")
    return {layer: Run(*(seen.get((layer, key)) for key in keys)) for layer in case.layers}


def relative(got, truth):
    return ((got - truth).norm() / truth.norm()).item()


def check_raw(factors, run, scale_free):
    """Compare head by head; an inner norm or gate leaves one scale for all of a token."""
    z = run.heads.view(len(factors.O), -1)
    own = factors.V[factors.value_head].mT @ run.attention_input
    if scale_free:
        own = own * ((own * z).sum() / own.square().sum())
    for head in range(len(z)):
        assert relative(own[head], z[head]) < 1e-5, f"values of head {head}"
    for head in range(len(z)):
        alone = torch.zeros_like(z)
        alone[head] = z[head]
        truth = alone.flatten() @ run.projection
        assert relative(factors.O[head] @ z[head], truth) < 1e-5, f"output of head {head}"
    written = (factors.O @ z[..., None]).sum(0).flatten()
    assert relative(written, run.written) < 1e-5, "output"


def check_folded(factors, run):
    """Up to the norms' own scale, which depends on the token and is no part of T."""
    x = run.attention_input if run.block_input is None else run.block_input
    truth = run.written if run.block_output is None else run.block_output
    own = factors.V[factors.value_head].mT @ x
    if run.block_output is None:
        z = run.heads.view(own.shape)
        own = own * ((own * z).sum() / own.square().sum())
        for head in range(len(z)):
            assert relative(own[head], z[head]) < 1e-5, f"values of head {head}"
    written = (factors.O @ own[..., None]).sum(0).flatten()
    written = written * ((written @ truth) / written.square().sum())
    assert relative(written, truth) < 1e-5, "output"


def has_own_scale(name):
    """Whether a head's output has a factor that depends on the token, by gate or inner norm."""
    return model_type(name) in ("deepseek_v2", "deepseek_v3", "qwen3_next")


@pytest.mark.parametrize("name", CASES)
def test_factors_rebuild_the_attention_head_by_head(name, saved):
    folder, runs = saved(name)
    opened = si.open_model(folder, part=CASES[name].part)
    assert opened.layers == CASES[name].layers
    assert opened.n_layers == len(opened) == len(list(opened))
    for factors in opened:
        check_raw(factors, runs[factors.index], has_own_scale(name))


@pytest.mark.parametrize("name", CASES)
def test_folded_factors_act_on_the_block_input(name, saved):
    folder, runs = saved(name)
    raw = si.open_model(folder, part=CASES[name].part)
    folded = si.open_model(folder, norm="folded", part=CASES[name].part)
    changed = False
    for plain, factors in zip(raw, folded, strict=True):
        check_folded(factors, runs[factors.index])
        changed |= not (torch.equal(plain.O, factors.O) and torch.equal(plain.V, factors.V))
    has_norm = bool(CASES[name].before or CASES[name].after)
    assert changed == has_norm
    assert has_norm or "nothing to fold" in folded.norm_remark


def with_row(monkeypatch, row, **changes):
    """Put a changed row in the table's place of the right one."""
    table = tuple(replace(one, **changes) if one is row else one for one in layouts.LAYOUTS)
    monkeypatch.setattr(finding, "LAYOUTS", table)


def fails(name, saved):
    folder, runs = saved(name)
    try:
        for factors in si.open_model(folder, part=CASES[name].part):
            check_raw(factors, runs[factors.index], has_own_scale(name))
    except AssertionError:
        return True
    return False


@dataclass(frozen=True)
class Starts:
    """A row order of the same size that begins elsewhere."""

    right: storage.RowOrder
    wrong: storage.RowOrder | None = None
    shift: int = 0
    title: str = "mutated"

    def starts(self, h):
        starts = (self.wrong or self.right).starts(h)
        return [(start + self.shift * h.d_head) % self.right.total(h) for start in starts]

    def total(self, h):
        return self.right.total(h)


@dataclass(frozen=True)
class Chunks:
    """Three equal chunks."""

    title: str = "chunks"

    def starts(self, h):
        first = 2 * self.total(h) // 3
        return [first + g * h.d_head for g in range(h.n_value_heads)]

    def total(self, h):
        return (h.n_heads + 2 * h.n_value_heads) * h.d_head


FUSED = [
    name
    for name in CASES
    if isinstance(finding.rows_of("transformers", model_type(name))[0].value, storage.Linear)
    and not isinstance(
        finding.rows_of("transformers", model_type(name))[0].value.order, storage.Separate
    )
]
MUTATIONS = {
    "keys for values": lambda order: Starts(order, shift=-1),
    "a flat split of an interleaved weight": lambda order: Starts(order, storage.FusedBySize()),
    "an interleaved split of a flat weight": lambda order: Starts(order, storage.FusedByGroup()),
    "three equal chunks": lambda order: Starts(order, Chunks()),
    "queries for values": lambda order: Starts(order, storage.Separate()),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_faults_2_and_3_the_oracle_notices_a_wrong_split(mutation, saved, monkeypatch):
    tried = 0
    for name in FUSED:
        opened = si.open_model(saved(name)[0])
        row, h = opened.layout, opened.hyperparameters
        order = MUTATIONS[mutation](row.value.order)
        # Some splits are two names of the same rows: one query head, or one value head, a group.
        if order.starts(h) != row.value.order.starts(h):
            tried += 1
            with monkeypatch.context() as patch:
                with_row(patch, row, value=replace(row.value, order=order))
                assert fails(name, saved), name
    assert tried >= 4


@pytest.mark.parametrize("name", ["gpt2"])
def test_fault_16_a_square_matrix_transposed_is_noticed(name, saved, monkeypatch):
    folder, _ = saved(name)
    row = si.open_model(folder).layout
    with_row(monkeypatch, row, output=replace(row.output, transposed=False))
    assert fails(name, saved)


@pytest.mark.parametrize("name", ["llama", "phi3", "falcon-40b", "deepseek_v3"])
def test_the_oracle_notices_wrong_groups_and_heads(name, saved):
    folder, runs = saved(name)
    factors = si.open_model(folder)[0]
    wrong = [
        replace(factors, O=factors.O.flip(0)),
        replace(factors, O=factors.O.flip(2)),
        replace(factors, V=factors.V.roll(1, 0)),
        replace(factors, value_head=factors.value_head.roll(1)),
        replace(factors, value_head=torch.arange(len(factors.O)) % len(factors.V))
        if len(factors.V) < len(factors.O)
        else replace(factors, V=factors.V.flip(0)),
    ]
    for mutant in wrong:
        with pytest.raises(AssertionError, match="head"):
            check_raw(mutant, runs[0], has_own_scale(name))


@pytest.mark.parametrize("name", ["gemma2", "cohere", "olmo", "nemotron", "glm4", "dinov2"])
def test_fault_8_a_wrong_gain_is_noticed(name, saved, monkeypatch):
    """An offset forgotten or added twice, centring forgotten, a gain on the wrong side."""
    folder, runs = saved(name)
    row = si.open_model(folder).layout
    before, after = row.norm_before, row.norm_after
    mutants = [
        {"norm_before": replace(before, offset=before.offset + 1)} if before.weight else {},
        {"norm_before": replace(before, offset=0.0)} if before.offset else {},
        {"norm_before": replace(before, centred=not before.centred)},
        {"norm_after": None} if after else {},
        {"norm_before": after, "norm_after": before} if after and after.weight else {},
    ]
    layer = CASES[name].layers[0]
    for changes in filter(None, mutants):
        with monkeypatch.context() as patch:
            with_row(patch, row, **changes)
            with pytest.raises(AssertionError):
                check_folded(si.open_model(folder, norm="folded")[0], runs[layer])


def test_fault_8_the_centring_stands_before_the_gain(saved):
    """``(I - 11^T/d) diag(gain) V``: with the factors exchanged the oracle fails."""
    folder, runs = saved("cohere")
    opened = si.open_model(folder)
    factors = opened[0]
    gain = opened.reader.read("layers.0.input_layernorm.weight")
    exchanged = gain[:, None] * (factors.V - factors.V.mean(1, keepdim=True))
    with pytest.raises(AssertionError):
        check_folded(replace(factors, V=exchanged), runs[0])


def test_enough_architectures_are_tested_and_every_listed_one_is():
    listed = {
        kind
        for row in layouts.LAYOUTS
        if row.naming == "transformers"
        for kind in row.architectures
    }
    tested = {model_type(name) for name in CASES}
    assert tested == listed
    assert len(tested) >= 55
