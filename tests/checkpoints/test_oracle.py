"""The layouts against transformers' own forward pass.

With one token the softmax is 1, so an attention module's output is exactly ``sum_h T_h x`` and
biases, and the input of its output projection holds ``V_g(h)^T x`` head by head.
"""

import pytest
import torch

import scaled_idempotence as si
from tests.checkpoints import tiny

# Where a block's output projection is, and its attention's input and output norms.
PROJECTIONS = {
    "llama": lambda m, i: m.layers[i].self_attn.o_proj,
    "gemma3_text": lambda m, i: m.layers[i].self_attn.o_proj,
    "bert": lambda m, i: m.encoder.layer[i].attention.output.dense,
}
BLOCKS = {
    "llama": lambda m, i: (m.layers[i].self_attn, m.layers[i].input_layernorm, None),
    "gemma3_text": lambda m, i: (
        m.layers[i].self_attn,
        m.layers[i].input_layernorm,
        m.layers[i].post_attention_layernorm,
    ),
    "bert": lambda m, i: (m.encoder.layer[i].attention.self, None, None),
}


@torch.no_grad()
def record(model, model_type, layer):
    """Run one token; give the attention's input, the projection's input and its output."""
    attention, before, after = BLOCKS[model_type](model, layer)
    projection = PROJECTIONS[model_type](model, layer)
    seen = {}

    def see_attention(module, args, kwargs):
        seen["attention input"] = (args[0] if args else kwargs["hidden_states"]).double().flatten()

    def see_projection(module, args, output):
        seen["heads"] = args[0].double().flatten()
        bias = 0 if module.bias is None else module.bias.double()
        seen["output"] = output.double().flatten() - bias

    hooks = [
        attention.register_forward_pre_hook(see_attention, with_kwargs=True),
        projection.register_forward_hook(see_projection),
    ]
    if before is not None:
        hooks.append(
            before.register_forward_hook(
                lambda m, a, out: seen.update({"block input": a[0].double().flatten()})
            )
        )
    if after is not None:
        hooks.append(
            after.register_forward_hook(
                lambda m, a, out: seen.update({"block output": out.double().flatten()})
            )
        )
    try:
        model(torch.tensor([[7]]))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def value_bias(model_type, model, layer):
    if model_type != "bert":
        return 0
    return model.encoder.layer[layer].attention.self.value.bias.detach().double()


@pytest.mark.parametrize("model_type", tiny.CONFIGS)
def test_factors_rebuild_the_attention_output_head_by_head(model_type, tmp_path):
    model = tiny.save(model_type, tmp_path)
    opened = si.open_model(tmp_path)
    for layer in range(opened.n_layers):
        seen = record(model, model_type, layer)
        factors = opened[layer]
        x = seen["attention input"]
        own_V = factors.V[factors.value_head]
        heads = own_V.mT @ x + torch.as_tensor(value_bias(model_type, model, layer)).reshape(
            -1, opened.d_head if model_type == "bert" else 1
        )
        torch.testing.assert_close(heads.flatten(), seen["heads"], rtol=1e-5, atol=1e-6)
        z = seen["heads"].view(opened.n_heads, opened.d_head, 1)
        written = (factors.O @ z).sum(0).flatten()
        torch.testing.assert_close(written, seen["output"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_folded_factors_act_on_the_block_input(model_type, tmp_path):
    """Up to the norms' own scale, which depends on the token and is no part of T."""
    model = tiny.save(model_type, tmp_path)
    opened = si.open_model(tmp_path, norm="folded")
    for layer in range(opened.n_layers):
        seen = record(model, model_type, layer)
        factors = opened[layer]
        x = seen["block input"]
        T = (factors.O @ factors.V[factors.value_head].mT).sum(0)
        written = T @ x
        truth = seen.get("block output", seen["output"])
        cosine = written @ truth / (written.norm() * truth.norm())
        assert cosine == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("model_type", tiny.CONFIGS)
def test_the_oracle_notices_wrong_factors(model_type, tmp_path):
    model = tiny.save(model_type, tmp_path)
    opened = si.open_model(tmp_path)
    seen = record(model, model_type, 0)
    factors = opened[0]
    z = seen["heads"].view(opened.n_heads, opened.d_head, 1)
    for wrong_O in (factors.O.flip(0), factors.O.flip(2), opened[1].O):
        written = (wrong_O @ z).sum(0).flatten()
        assert not torch.allclose(written, seen["output"], rtol=1e-2)


def test_nothing_is_folded_in_a_post_ln_model(tmp_path):
    tiny.save("bert", tmp_path)
    raw, folded = si.open_model(tmp_path), si.open_model(tmp_path, norm="folded")
    assert torch.equal(raw[0].O, folded[0].O)
    assert torch.equal(raw[0].V, folded[0].V)
    assert "post-LN" in folded.norm_remark
