"""Tiny models that run, and models whose loss provably depends on closure, or provably does not."""

from __future__ import annotations

import math

import torch
import transformers


def llama(**changes) -> transformers.LlamaForCausalLM:
    """A random llama, GQA, in evaluation mode."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **{
            "vocab_size": 50,
            "hidden_size": 24,
            "intermediate_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 6,
            "max_position_embeddings": 64,
        }
        | changes
    )
    return randomised(transformers.LlamaForCausalLM(config))


def bert(kind=transformers.BertForMaskedLM) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=24,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    return randomised(kind(config))


def gpt2() -> transformers.GPT2LMHeadModel:
    """Output projections are Conv1D: transposed."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=24, n_layer=2, n_head=4, vocab_size=50, n_positions=64, n_inner=16
    )
    return randomised(transformers.GPT2LMHeadModel(config))


def randomised(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.15 * noise + (parameter.ndim == 1))
    return model.eval()


def tokens(n=4, length=12, vocabulary=50) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(vocabulary, (n, length), generator=generator)


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


KAPPA, SCALE, OFF, OBLIQUE = 1.5, 0.4, 0.7, 0.6


def planted(reads_return: bool) -> transformers.LlamaForCausalLM:
    """A llama in float64 whose loss provably depends on one head's closure, or provably does not.

    One layer, two heads, ``d = 8``, ``r = 2``, an MLP of zeros, and norms that are the identity (an
    epsilon of 1e12 with gains of 1e6; up to float32, in which they compute). Token ``i`` is
    embedded as the unit vector ``e_i``. Texts repeat one token ``i`` out of {0, 1}, so every
    position holds the same value and attention, whatever its weights, passes it on.

    Head 0 has ``V = [e_0, e_1]`` and ``O = V M + N`` with ``M = [[a, b], [b, a]]`` and
    ``N = n [e_4, e_5]``, so ``V^T O = M`` and ``V^T N = 0``. The nearest member has the scale
    ``tr M / 2 = a``: the projection takes ``b`` away and nothing else. Head 1 reads ``e_2, e_3``,
    where these texts have nothing, and is an exact member. The layer therefore adds
    ``O e_i = a e_i + b e_(1-i) + n e_(4+i)``.

    *It depends* (``reads_return``): logit ``j`` is ``k`` times coordinate ``j`` for ``j`` in {0, 1}
    and 0 for the six others. The next token is ``i`` again, so

        loss = log(exp(k (1 + a)) + exp(k b) + 6) - k (1 + a),

    which strictly increases with ``b``: with the head's departure from the algebra, and with
    nothing of its oblique part. Along the straight path ``b`` becomes ``(1 - t) b``.

    *It does not*: logit ``j`` is ``k`` times coordinate ``4 + j``. The projection moves the
    coordinates 0 and 1 alone, so no logit changes and the loss is ``log(exp(k n) + 7) - k n`` for
    every ``t``.
    """
    config = transformers.LlamaConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=2,
        max_position_embeddings=32,
        rms_norm_eps=1e12,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config).double().eval()
    e = torch.eye(8, dtype=torch.float64)
    M = torch.tensor([[SCALE, OFF], [OFF, SCALE]], dtype=torch.float64)
    V0, V1 = e[:, 0:2], e[:, 2:4]
    O0, O1 = V0 @ M + OBLIQUE * e[:, 4:6], 0.5 * V1
    layer = model.model.layers[0]
    with torch.no_grad():
        for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
            norm.weight.fill_(1e6)
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(e)
        layer.self_attn.v_proj.weight.copy_(torch.cat([V0.mT, V1.mT]))
        layer.self_attn.o_proj.weight.copy_(torch.cat([O0, O1], dim=1))
        model.lm_head.weight.zero_()
        read = e[0:2] if reads_return else e[4:6]
        model.lm_head.weight[:2] = KAPPA * read
    return model


def planted_loss(reads_return: bool, t: float) -> float:
    """The loss of `planted` at a share `t` of the way to the exact member, by its proof."""
    k, b = KAPPA, (1 - t) * OFF
    if reads_return:
        right, others = k * (1 + SCALE), math.exp(k * b) + 6
    else:
        right, others = k * OBLIQUE, 7.0
    return math.log(math.exp(right) + others) - right


def planted_texts(n=4, length=6) -> torch.Tensor:
    return (torch.arange(n) % 2)[:, None].expand(n, length).contiguous()
