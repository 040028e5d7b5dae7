"""Running models: where the output projections are, what is changed, and that it is undone."""

import pytest
import torch
import transformers

import scaled_idempotence as si
from scaled_idempotence.checkpoints.module import LiveModule
from scaled_idempotence.errors import CannotRun
from scaled_idempotence.running import hooks
from tests.checkpoints.tiny import make
from tests.running import models as tiny

MAKERS = {"llama": tiny.llama, "gpt2": tiny.gpt2, "bert": tiny.bert}


def opened(module, **options):
    model = si.open_model(module)
    return model, si.run_model(model, **options)


def hooks_of(module):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


@pytest.mark.parametrize("name", MAKERS)
def test_the_projections_input_and_weights_rebuild_its_output(name):
    module = MAKERS[name]()
    model, running = opened(module)
    outputs = []
    one = running.projections[1]
    handle = one.module.register_forward_hook(lambda m, a, out: outputs.append(out))
    with hooks.projection_inputs(running) as seen:
        running.hidden(tiny.tokens())
    handle.remove()
    (z,) = seen[1]
    written = sum(z[:, :, head] @ one.weights(head).mT for head in range(one.n_heads))
    bias = 0 if one.module.bias is None else one.module.bias
    torch.testing.assert_close(written + bias, outputs[0])
    for head in range(one.n_heads):
        torch.testing.assert_close(one.weights(head).double(), model[1].O[head])
    assert one.layer == 1
    assert hooks_of(module) == 0


@pytest.mark.parametrize("name", MAKERS)
def test_zeroing_every_head_leaves_the_bias_alone(name):
    module = MAKERS[name]()
    _, running = opened(module)
    one = running.projections[0]
    outputs = []
    handle = one.module.register_forward_hook(lambda m, a, out: outputs.append(out))
    with hooks.patched(running, {(0, h): -one.weights(h).double() for h in range(one.n_heads)}):
        running.hidden(tiny.tokens())
    handle.remove()
    bias = one.module.bias
    expected = torch.zeros_like(outputs[0]) + (0 if bias is None else bias)
    torch.testing.assert_close(outputs[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", MAKERS)
def test_a_change_of_zero_changes_no_bit(name):
    module = MAKERS[name]()
    _, running = opened(module)
    before = running.hidden(tiny.tokens())
    changes = {(0, head): 0.0 * running.projections[0].weights(head).double() for head in (0, 2)}
    with hooks.patched(running, changes):
        assert torch.equal(running.hidden(tiny.tokens()), before)


def test_everything_is_as_before_after_an_exception():
    module = tiny.llama()
    _, running = opened(module)
    before = tiny.weights_of(module)
    change = torch.ones_like(running.projections[1].weights(0), dtype=torch.float64)
    changes = {(1, 0): change, (1, 3): change, (2, 1): change}
    blocks = [one.block for one in running.projections]
    changed = []

    def interrupted():
        with (
            hooks.projection_inputs(running),
            hooks.block_outputs(running),
            hooks.skipping(blocks, [None] * 3),
            hooks.patched(running, changes),
        ):
            changed.extend(
                name for name, x in module.state_dict().items() if not torch.equal(x, before[name])
            )
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert changed == [f"model.layers.{n}.self_attn.o_proj.weight" for n in (1, 2)]
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert hooks_of(module) == 0
    assert not any("forward" in vars(m) for m in module.modules())


def test_the_member_in_the_running_weights_is_idempotent():
    module = tiny.llama().double()
    model, running = opened(module)
    layer = model[2]
    change = si.nearest_idempotent(layer.O[3], layer.V[1]) - layer.O[3]
    with hooks.patched(running, {(2, 3): change}):
        T = running.projections[2].weights(3) @ layer.V[1].mT
        a = torch.trace(layer.V[1].mT @ layer.O[3]) / model.d_head
        assert (T @ T - a * T).norm() < 1e-8 * (a * T).norm()
        assert si.closure(*(running.projections[2].weights(3), layer.V[1])) > 1 - 1e-12
    T = running.projections[2].weights(3) @ layer.V[1].mT
    assert (T @ T - a * T).norm() > 0.1 * (a * T).norm()


@pytest.mark.parametrize("kind", [transformers.BertForMaskedLM, transformers.BertModel])
def test_the_task_of_a_module(kind):
    _, running = opened(tiny.bert(kind))
    assert running.task == ("masked" if kind is transformers.BertForMaskedLM else "none")


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_model_runs_as_the_one_in_memory(name, tmp_path, monkeypatch):
    module = MAKERS[name]()
    module.save_pretrained(tmp_path)
    # Its tokenizer is not what is tested.
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained", lambda *a, **k: "a tokenizer"
    )
    model = si.open_model(tmp_path)
    running = si.run_model(model)
    assert running.task == ("masked" if name == "bert" else "causal")
    assert running.tokenizer == "a tokenizer"
    with torch.inference_mode():
        expected = module(tiny.tokens()).logits
    torch.testing.assert_close(running.logits(tiny.tokens()), expected)
    with pytest.raises(CannotRun, match="raise max_bytes"):
        si.run_model(model, max_bytes=10)


def test_a_saved_model_without_its_head_runs_without(tmp_path, monkeypatch):
    tiny.bert(transformers.BertModel).save_pretrained(tmp_path)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *a, **k: None)
    assert si.run_model(si.open_model(tmp_path)).task == "none"


@pytest.mark.parametrize(
    ("name", "message"), [("vit", "no model of text"), ("bart-encoder", "several parts")]
)
def test_what_is_no_single_model_of_text_says_so(name, message, tmp_path):
    make(name).save_pretrained(tmp_path)
    with pytest.raises(CannotRun, match=message):
        si.run_model(si.open_model(tmp_path))


def test_a_folder_without_a_tokenizer_says_so(tmp_path):
    tiny.llama().save_pretrained(tmp_path)
    with pytest.raises(CannotRun, match="transformers cannot load"):
        si.run_model(si.open_model(tmp_path))


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(CannotRun, match="eval"):
        opened(tiny.llama().train())


def test_projections_are_found_under_renamed_modules():
    """By the memory of their weights, whatever the module is called inside."""
    module = tiny.llama()
    live = LiveModule(module)
    _, running = opened(module)
    for n, one in enumerate(running.projections):
        assert one.module is module.model.layers[n].self_attn.o_proj
        assert one.block is module.model.layers[n]
        name = f"model.layers.{n}.self_attn.o_proj.weight"
        assert live.tensor(name).data_ptr() == one.module.weight.data_ptr()
