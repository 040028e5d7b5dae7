import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.errors import ScaledIdempotenceError
from scaled_idempotence.experiments import activations as a
from scaled_idempotence.running import text as t
from tests.running import models as tiny


def dense_scores(module, model, texts, position):
    """Per head: median over tokens of cos^2(y, T y) and of the wrong-V control, from dense T."""
    inputs = []
    projection = module.model.layers[position].self_attn.o_proj
    handle = projection.register_forward_pre_hook(lambda m, args: inputs.append(args[0]))
    with torch.inference_mode():
        module(texts)
    handle.remove()
    layer = model[position]
    H, G = len(layer.O), len(layer.V)
    z = inputs[0].double().flatten(0, 1).unflatten(-1, (H, -1))
    rows = []
    for head in range(H):
        y = z[:, head] @ layer.O[head].T
        row = []
        for g in (head // (H // G), (head // (H // G) + 1) % G):
            Ty = y @ (layer.O[head] @ layer.V[g].T).T
            row.append(torch.cosine_similarity(y, Ty, dim=-1).square().median().item())
        rows.append(row)
    return np.array(rows)


def test_scores_are_those_of_dense_operators():
    module = tiny.llama()
    model = si.open_model(module)
    texts = tiny.tokens(3, 11)  # an odd number of tokens: its median is one of them
    table = si.activations(model, texts, n_segments=3, progress=False)
    assert table.attrs["measured"]
    assert len(table) == 12
    truth = dense_scores(module, model, texts, 1)
    layer = table[table.layer == 1]
    assert layer.cos2_median.to_numpy() == pytest.approx(truth[:, 0], rel=1e-4)
    assert layer.wrong_v_cos2_median.to_numpy() == pytest.approx(truth[:, 1], rel=1e-4)
    survey = si.survey(model, progress=False)
    assert table.closure.to_numpy() == pytest.approx(survey.closure.to_numpy())


def test_smollm2_on_pydoc_topics(running_smollm2):
    """The figures of section 8; other Python versions have other topics, hence the width."""
    table = running_smollm2.activations
    groups = a.group_medians(table)
    assert groups.cos2_median.strong == pytest.approx(0.926, abs=0.02)
    assert groups.cos2_median.high == pytest.approx(0.870, abs=0.02)
    assert groups.wrong_v_cos2_median.high < 0.02
    assert groups.wrong_v_cos2_median.strong < 0.02
    assert groups.cos2_median.low < 0.03
    assert groups.heads[["strong", "high", "low", "matched low"]].tolist() == [13, 27, 27, 27]
    assert table.attrs["text"].startswith("pydoc_data.topics of Python")


def test_a_model_that_cannot_run_gives_the_factors_columns(tmp_path):
    model = si.open_model("minilm-l6")
    table = si.activations(model, max_bytes=1000, results_dir=tmp_path, progress=False)
    assert not table.attrs["measured"]
    assert "raise max_bytes" in table.attrs["reason"]
    assert table.cos2_median.isna().all()
    # Per token and Gaussian, the median follows closure closely.
    assert table[["closure", "isotropic_cos2_median"]].corr(method="spearman").iloc[0, 1] > 0.95
    written = si.load_result(tmp_path, "minilm-l6", "activations")
    pd.testing.assert_frame_equal(written, table)
    assert written.attrs["reason"] == table.attrs["reason"]


def test_a_model_in_memory_needs_a_tokenizer_or_tokens():
    table = si.activations(si.open_model(tiny.llama()), progress=False)
    assert "no tokenizer" in table.attrs["reason"]


def test_decile_groups():
    heads = pd.DataFrame({"layer": [0] * 10 + [1] * 10, "closure": np.linspace(0, 0.95, 20)})
    heads.loc[3, "closure"] = np.nan
    group, matched = a.decile_groups(heads)
    assert np.flatnonzero(group == "high").tolist() == [18, 19]
    assert np.flatnonzero(group == "low").tolist() == [0, 1]
    assert np.flatnonzero(matched).tolist() == [10, 11]


class WordTokenizer:
    """A number a word, between a start and an end."""

    mask_token_id = 99

    def __call__(self, text, add_special_tokens=True, verbose=True):
        ids = [int(word) if word.isdigit() else 7 for word in text.split()]
        ids = [1, *ids, 2] if add_special_tokens else ids
        return type("Encoding", (), {"input_ids": ids})


def running_with(tokenizer, max_length=None):
    return type("Running", (), {"tokenizer": tokenizer, "max_length": max_length})


def test_segments_of_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(" ".join(map(str, range(100, 160))))
    found = t.segments(running_with(WordTokenizer()), path, 3, 6, stride=20)
    assert found.tokens.tolist() == [[1, *range(s, s + 4), 2] for s in (100, 120, 140)]
    assert found.protected.tolist() == [True, False, False, False, False, True]
    short = t.segments(running_with(WordTokenizer(), max_length=4), str(path), 1, 6)
    assert short.tokens.tolist() == [[1, 100, 101, 2]]
    with pytest.raises(ScaledIdempotenceError, match="has 60 tokens, expected at least 84"):
        t.segments(running_with(WordTokenizer()), path, 5, 6, stride=20)
    with pytest.raises(ScaledIdempotenceError, match="no text file"):
        t.segments(running_with(WordTokenizer()), tmp_path / "absent", 1, 6)


def test_the_mask_is_fixed_and_spares_special_tokens():
    tokens = torch.arange(80).reshape(2, 40)
    protected = torch.zeros(40, dtype=torch.bool)
    protected[[0, -1]] = True
    chosen = t.Segments(tokens, protected, 99, "")
    masked, places = chosen.masked()
    assert torch.equal(places, chosen.masked()[1])
    assert places.sum(1).tolist() == [6, 6]
    assert not places[:, protected].any()
    assert (masked[places] == 99).all()
    assert torch.equal(masked[~places], tokens[~places])
    assert not torch.equal(places[0], places[1])
    # A segment's mask does not depend on how many there are.
    assert torch.equal(chosen.first(1).masked()[1], places[:1])


@pytest.mark.parametrize("change", ["tokens", "n_segments", "length", "tokenizer"])
def test_a_text_is_told_by_its_content_before_the_model_runs(tmp_path, change):
    from transformers import AutoTokenizer

    model = si.open_model("minilm-l6")
    tokenizer = AutoTokenizer.from_pretrained(model.source)
    given = {"text": tmp_path / "text.md", "n_segments": 1, "length": 16, "tokenizer": None}
    given["text"].write_text("A head writes what it reads. " * 40)

    def told():
        return t.text_inputs(
            model, given["text"], given["n_segments"], given["length"], given["tokenizer"]
        )

    before = told()
    assert told() == before
    if change == "tokens":
        given["text"].write_text("A head reads what it writes. " * 40)
    elif change == "tokenizer":
        given["tokenizer"] = tokenizer
    else:
        given[change] += 1
    assert told() != before


def test_a_finished_table_of_another_text_is_not_taken(tmp_path):
    model = si.open_model(tiny.llama())
    options = {"results_dir": tmp_path, "progress": False}
    one = si.activations(model, tiny.tokens(1, 11), **options)
    other = si.activations(model, tiny.tokens(1, 12), **options)
    assert one.attrs["tokens_sha256"] != other.attrs["tokens_sha256"]
    assert not one.cos2_median.equals(other.cos2_median)
