"""The scoreboard over folders of tables: what is found, what is refused, and what is shown."""

import importlib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib.figure import Figure

import scaled_idempotence as si
from scaled_idempotence.claims import CHAPTERS, CLAIMS, FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN
from scaled_idempotence.claims.scoreboard import NO_LINEAGE, counts
from scaled_idempotence.claims.tables import combined, lineage_groups, sign_shares
from scaled_idempotence.compute.results import ALL_MODELS, result_path, write_table
from scaled_idempotence.publish.verdicts import SYMBOLS, section_table
from tests.claims.planted import LIES, attrs, true_tables, without_strong, write

MODEL_CLAIMS = [claim for claim in CLAIMS if claim.subject == "model"]


def verdicts(results, model="planted"):
    board = si.scoreboard(results)
    return board[board.model == model].set_index("claim").verdict


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    write(folder, "planted", true_tables())
    return folder


def test_every_claim_gets_a_row_for_every_model(results):
    write(results, "a second", without_strong(true_tables("a second")))
    board = si.scoreboard(results)
    models = board[board.subject == "model"]
    assert list(dict.fromkeys(models.model)) == ["a second", "planted"]
    assert models.groupby("model").claim.apply(list).map(len).eq(len(MODEL_CLAIMS)).all()
    assert set(verdicts(results)) == {HOLDS}
    assert verdicts(results, "a second")["survey.strong"] == FAILS
    assert counts(models).loc["planted", HOLDS] == len(MODEL_CLAIMS)
    assert list(counts(models).columns) == [HOLDS, FAILS, NOT_APPLICABLE, NOT_RUN]


def test_a_lie_on_disk_changes_its_verdict_and_not_the_others_tables(results):
    tables = true_tables("liar")
    LIES["sharing.rho"](tables)
    write(results, "liar", tables)
    assert verdicts(results, "liar")["sharing.rho"] == FAILS
    assert verdicts(results, "planted")["sharing.rho"] == HOLDS


def test_nothing_there_is_an_empty_board(tmp_path):
    assert len(si.scoreboard(tmp_path / "results")) == 0
    (tmp_path / "results" / "no tables").mkdir(parents=True)
    assert len(si.scoreboard(tmp_path / "results")) == 0


@pytest.mark.parametrize("table", sorted({name for claim in CLAIMS for name in claim.needs}))
def test_a_missing_table_is_not_run(results, table):
    folder = ALL_MODELS if table == "trajectory_gaps" else "planted"
    result_path(results, folder, table).unlink()
    board = si.scoreboard(results).set_index("claim")
    hit = {claim.id for claim in CLAIMS if table in claim.needs}
    assert hit
    assert set(board.index[board.verdict == NOT_RUN]) == hit
    assert (board.loc[sorted(hit)].remark == f"there is no {table}.parquet").all()
    assert (board.verdict.drop(sorted(hit)) == HOLDS).all()


def damage_bytes(path):
    path.write_bytes(b"not a table at all")


def damage_truncated(path):
    path.write_bytes(path.read_bytes()[:200])


def damage_empty(path):
    path.write_bytes(b"")


def damage_foreign(path):
    table = pd.read_parquet(path)
    table.attrs = {}
    table.to_parquet(path)


def damage_version(path):
    table = pd.read_parquet(path)
    table.attrs["package_version"] = "0.0.1"
    table.to_parquet(path)


def damage_columns(path):
    pd.read_parquet(path).rename(columns={"closure": "P"}).to_parquet(path)


def damage_text(path):
    table = pd.read_parquet(path)
    table["closure"] = "high"
    table.to_parquet(path)


@pytest.mark.parametrize(
    ("damage", "remark"),
    [
        (damage_bytes, "unreadable: support.parquet is no parquet table"),
        (damage_truncated, "unreadable: support.parquet is no parquet table"),
        (damage_empty, "unreadable: support.parquet is no parquet table"),
        (damage_foreign, "does not say its model"),
        (damage_version, "was written by version 0.0.1, this is"),
        (damage_columns, "has no column closure"),
        (damage_text, "expected numbers"),
    ],
)
def test_a_damaged_or_foreign_table_is_told_and_not_used(results, damage, remark):
    damage(result_path(results, "planted", "support"))
    board = si.scoreboard(results).set_index("claim")
    rows = board[board.index.str.startswith("factorization.")]
    assert (rows.verdict == NOT_RUN).all()
    assert rows.remark.str.contains(remark, regex=False).all()
    assert rows.remark.str.contains("`scaled-idempotence run planted --force`").all()
    assert (board.verdict.drop(rows.index) == HOLDS).all()
    # ... and comparisons go on without it.
    assert len(combined(results, "support", ("closure",))) == 0
    assert set(combined(results, "survey").model) == {"planted"}


def test_a_folder_in_a_tables_place_is_no_table(results):
    path = result_path(results, "planted", "survey")
    path.unlink()
    path.mkdir()
    assert verdicts(results)["survey.strong"] == NOT_RUN


def test_tables_of_other_weights_are_stale(results):
    table = true_tables()["orientation"]
    table.attrs["weights"] = "sha256:new"
    write_table(table, result_path(results, "planted", "orientation"))
    board = si.scoreboard(results).set_index("claim")
    assert board.verdict["scrambling.layers"] == HOLDS
    assert board.verdict["survey.strong"] == NOT_RUN
    assert "other weights (sha256:planted)" in board.remark["survey.strong"]


def test_what_no_experiment_writes_is_no_crash(results):
    path = result_path(results, ALL_MODELS, "trajectory_gaps")
    table = pd.read_parquet(path)
    table = table[table.quantity != "attainment"]
    table.attrs = attrs("planted")
    write_table(table, path)
    board = si.scoreboard(results).set_index("claim")
    assert board.verdict["training.mostly"] == NOT_RUN
    assert board.remark["training.mostly"].startswith("unreadable: trajectory_gaps")
    assert board.verdict["training.capacity"] == HOLDS


def test_lineages_have_rows_of_their_own(results):
    path = result_path(results, ALL_MODELS, "trajectory_gaps")
    table = pd.read_parquet(path)
    pooled = table.assign(lineage="all")
    other = true_tables("other")["trajectory_gaps"]
    LIES["training.mostly"]({"trajectory_gaps": other})
    both = pd.concat([table, other, pooled], ignore_index=True)
    both.attrs = table.attrs
    write_table(both, path)
    board = si.scoreboard(results)
    rows = board[board.subject == "lineage"]
    assert list(dict.fromkeys(rows.model)) == ["planted", "other"]
    found = rows.set_index(["claim", "model"]).verdict
    assert found["training.mostly", "planted"] == HOLDS
    assert found["training.mostly", "other"] == FAILS
    path.unlink()
    rows = si.scoreboard(results).query("subject == 'lineage'")
    assert set(rows.model) == {NO_LINEAGE}
    assert set(rows.verdict) == {NOT_RUN}


def test_a_real_model_without_strong_heads_is_not_flattered(tmp_path, surveys):
    write_table(surveys("minilm-l6"), result_path(tmp_path, "minilm-l6", "survey"))
    board = si.scoreboard(tmp_path).set_index("claim")
    assert board.verdict["survey.strong"] == FAILS
    assert board.ours["survey.strong"] == "0 of 72"
    assert board.verdict["survey.negative"] == NOT_APPLICABLE
    assert board.verdict["survey.wrong_v_max"] == HOLDS
    assert board.verdict["scrambling.layers"] == NOT_RUN


def test_the_public_name_is_the_function():
    importlib.import_module("scaled_idempotence.claims.scoreboard")

    assert callable(si.scoreboard)
    assert set(CHAPTERS) == {claim.section for claim in CLAIMS}


@pytest.mark.parametrize("n_models", [1, 12])
def test_figures_for_one_and_for_many_models(tmp_path, n_models):
    kinds = [
        true_tables,
        lambda name: true_tables(name, "MQA"),
        lambda name: true_tables(name, "MHA"),
    ]
    for n in range(n_models):
        name = f"model-with-a-long-name-{n:02d}"
        tables = kinds[n % 3](name)
        write(tmp_path, name, without_strong(tables) if n % 4 == 3 else tables)
    board = si.scoreboard(tmp_path)
    models = board[board.subject == "model"]
    figure = si.plots.claims_map(models)
    symbols = [text.get_text() for text in figure.axes[0].texts]
    for verdict, symbol in SYMBOLS.items():
        assert symbols.count(symbol) == (models.verdict == verdict).sum()
    heads = combined(tmp_path, "survey", ("closure", "alpha"))
    pairs = combined(tmp_path, "sharing_pairs", ("F", "rho", "control_rho"))
    figures = [
        figure,
        si.plots.closure_by_model(heads, si.paper.ENDPOINTS),
        si.plots.depth_by_model(heads),
        si.plots.sign_by_model(sign_shares(heads), si.paper.SURVEY["negative_alpha"]),
        si.plots.attainment_by_model(combined(tmp_path, "attainment"), si.paper.CAPACITY),
        si.plots.sharing_by_model(pairs, si.paper.SHARING),
    ]
    for drawn in figures:
        assert isinstance(drawn, Figure)
        drawn.canvas.draw()  # layout warnings come here, and are errors
    assert plt.get_fignums() == []


def test_shares_of_negative_alpha():
    heads = pd.DataFrame(
        {
            "model": "a",
            "closure": [0.95, 0.92, 0.5, 0.1, np.nan],
            "alpha": [-1.0, 1.0, -1.0, -1.0, np.nan],
        }
    )
    shares = sign_shares(heads).set_index("group")
    assert shares.negative.to_dict() == {"strong": 0.5, "top decile": 1.0, "all": 0.75}
    assert shares.heads.to_dict() == {"strong": 2, "top decile": 1, "all": 4}
    assert np.isnan(sign_shares(heads, 0.99).negative.iloc[0])


def test_depth_runs_from_first_to_last_layer(results):
    table = combined(results, "survey")
    assert (
        table.groupby("layer").depth.first().round(3).tolist()
        == np.linspace(0, 1, 10).round(3).tolist()
    )


def test_tables_for_the_page_link_to_executed_pages_and_escape(tmp_path, results):
    write(results, "a<b", true_tables("a<b"))
    page = tmp_path / "executed" / "planted" / "01_closure_survey.ipynb"
    page.parent.mkdir(parents=True)
    page.touch()
    board = si.scoreboard(results)
    html = section_table(board, "Closure survey", results).to_html()
    soup = BeautifulSoup(html, "html.parser")
    headers = {th.get_text(): th.a and th.a["href"] for th in soup.select("th")}
    assert headers["planted"] == "../planted/01_closure_survey.html"
    assert headers["a<b"] is None
    rows = soup.select("tbody tr")
    assert len(rows) == sum(claim.section == "Closure survey" for claim in CLAIMS)
    assert soup.select("td.verdict-holds")
    assert "Holds if" in rows[0].get_text()
    lineages = section_table(board, "Training", results).to_html()
    assert "<a " not in lineages


def test_what_ends_strong_is_told(results):
    assert lineage_groups(results) == "those with P ≥ 0.9 at the last checkpoint"
    path = result_path(results, ALL_MODELS, "trajectory_gaps")
    table = pd.read_parquet(path)
    table.attrs["top"] = 0.25
    write_table(table, path)
    assert lineage_groups(results).startswith("the 25% of the highest closure")
