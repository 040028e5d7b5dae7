"""The head explorer's numbers are the tables', and its size is bounded."""

import gzip
import json
import re
from base64 import b64decode

import numpy as np
import pandas as pd
import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.compute.results import write_table
from scaled_idempotence.errors import ScaledIdempotenceError
from scaled_idempotence.experiments.cores import cores_layer
from scaled_idempotence.publish import explorer

MODEL = "minilm-l6"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    model = si.open_model(MODEL)
    si.survey(model, results_dir=folder, progress=False)
    si.cores(model, block=5, results_dir=folder, progress=False)
    return folder


def test_cores_are_leading_blocks_of_the_operators_in_principal_bases(results):
    model = si.open_model(MODEL)
    table = si.load_result(results, MODEL, "cores").set_index(["layer", "head"])
    layer = model[2]
    for head in (0, 7):
        row = table.loc[(2, head)]
        O, V = layer.O[head], layer.V[layer.value_head[head]]
        T = O @ V.T
        _, cosines, Q_O, Q_V = si.principal_coordinates(O, V)
        np.testing.assert_allclose(row.cosines, cosines, rtol=1e-6)
        for name, operator in {"core": T, "response": T @ T}.items():
            whole = Q_O.T @ operator @ Q_V
            block = whole[:5, :5]
            assert getattr(row, f"{name}_scale") == pytest.approx(whole.abs().max().item())
            np.testing.assert_allclose(
                row[name].reshape(5, 5) * getattr(row, f"{name}_scale"),
                block,
                atol=1e-6 * whole.abs().max().item(),
            )
            share = (block.norm() ** 2 / torch.linalg.matrix_norm(operator) ** 2).item()
            assert getattr(row, f"{name}_share") == pytest.approx(share)


def test_a_head_without_closure_has_no_core():
    layer = si.open_model(MODEL)[0]
    layer.O[3] = 0
    table = cores_layer(layer, block=4)
    assert [len(row) for row in table.core] == [0 if head == 3 else 16 for head in range(12)]
    assert np.isnan(table.core_scale[3])
    assert table.core_scale.notna().sum() == 11


def test_a_block_must_hold_something():
    with pytest.raises(ValueError, match="block is 0"):
        si.cores(si.open_model(MODEL), block=0)


def sources(made):
    """The columns of every data source of an explorer, decoded."""
    (text,) = re.findall(r"const docs_json = '(.*?)';\n", made.html)
    documents = json.loads(text.encode().decode("unicode_escape").encode("latin-1").decode())
    found = []

    def walk(node):
        if isinstance(node, dict):
            if node.get("name") == "ColumnDataSource":
                entries = node["attributes"]["data"]["entries"]
                found.append({name: array(value) for name, value in entries})
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    def array(value):
        if isinstance(value, dict) and value.get("type") == "ndarray":
            data = b64decode(value["array"]["data"])
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            return np.frombuffer(data, value["dtype"]).reshape(value["shape"])
        return value

    walk(documents)
    return found


def test_the_page_holds_the_numbers_of_the_tables(results):
    made = si.head_explorer(results)
    assert made.models == (MODEL,)
    assert made.matrices == {MODEL: (72, 72)}
    (heads,) = [s for s in sources(made) if "copying_score" in s]
    (matrices,) = [s for s in sources(made) if "core" in s]
    survey = si.load_result(results, MODEL, "survey")
    cores = si.load_result(results, MODEL, "cores")
    for name in ("closure", "alpha", "return_gain", "wrong_v_closure"):
        np.testing.assert_allclose(heads[name], survey[name], rtol=1e-6)
    assert np.isnan(heads["capacity"]).all()  # its table is not there
    order = np.argsort(-survey.closure.to_numpy())
    np.testing.assert_array_equal(heads["rank"][order], np.arange(1, 73))
    for row in (0, 30, 71):
        at = heads["matrix"][row]
        assert np.abs(matrices["core"][at] / 127 - cores.core[row]).max() <= 0.5 / 127 + 1e-6
        assert np.abs(matrices["cosines"][at] / 255 - cores.cosines[row]).max() <= 0.5 / 255 + 1e-6


def test_nothing_comes_from_elsewhere(results):
    page = si.head_explorer(results).html
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=", page)
    assert "@import" not in page


def planted(folder, label, n_layers, n_heads, d_head=128, block=24):
    """Tables of a model of any size, of numbers that mean nothing."""
    rng = np.random.default_rng(0)
    n = n_layers * n_heads
    index = {
        "layer": np.repeat(np.arange(n_layers), n_heads),
        "head": np.tile(np.arange(n_heads), n_layers),
    }
    names = [column for table, column, *_ in explorer.SHOWN if table == "survey"]
    survey = pd.DataFrame(index | {name: rng.random(n) for name in names})
    survey["reason"] = None
    survey.loc[0, "closure"] = np.nan
    survey.loc[0, "reason"] = "zero operator"
    survey.attrs = {"d_head": d_head, "d_model": 4 * d_head}
    write_table(survey, folder / label / "survey.parquet")
    lists = {
        "cosines": list(rng.random((n, d_head)).astype(np.float32)),
        "core": list(rng.uniform(-1, 1, (n, block**2)).astype(np.float32)),
    }
    cores = pd.DataFrame(index | lists)
    cores["response"] = cores.core
    cores.attrs = {"block": block}
    write_table(cores, folder / label / "cores.parquet")


def test_large_models_keep_the_page_small_and_it_says_what_was_left_out(tmp_path):
    planted(tmp_path, "a-large", 94, 64)
    planted(tmp_path, "b-small", 6, 8, d_head=16, block=16)
    made = si.head_explorer(tmp_path)
    assert len(made.html) < 2_900_000
    kept, heads = made.matrices["a-large"]
    assert heads == 6016
    assert 100 < kept < 6016
    assert made.matrices["b-small"] == (47, 48)  # one has no closure
    (large, small) = [s for s in sources(made) if "copying_score" in s]
    shown = large["matrix"] >= 0
    assert shown.sum() == kept
    assert np.nanmin(large["closure"][shown]) >= np.nanmax(large["closure"][~shown])
    assert small["matrix"][0] == -1

    for extra in "cde":
        planted(tmp_path, f"{extra}-large", 94, 64, d_head=8, block=2)
    made = si.head_explorer(tmp_path)
    assert made.left_out
    assert set(made.models) | set(made.left_out) == {
        "a-large",
        "b-small",
        *(f"{x}-large" for x in "cde"),
    }
    assert len(made.html) < 2_900_000


def test_without_tables_it_says_what_computes_them(tmp_path):
    (tmp_path / "half").mkdir()
    with pytest.raises(ScaledIdempotenceError, match="scaled-idempotence run"):
        si.head_explorer(tmp_path)
