"""Every claim against planted tables: true ones, a lie a claim, nothing, and nothing defined."""

import numpy as np
import pytest

from scaled_idempotence import paper
from scaled_idempotence.claims import (
    CLAIMS,
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    judge,
)
from scaled_idempotence.claims.checks import as_often
from scaled_idempotence.claims.tables import TEXT
from tests.claims.planted import LIES, true_tables, without_strong

BY_ID = {claim.id: claim for claim in CLAIMS}
every_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)


def test_claims_are_distinct_and_each_has_a_lie():
    assert len(BY_ID) == len(CLAIMS) >= 40
    assert set(LIES) == set(BY_ID)
    assert len({(claim.section, claim.short) for claim in CLAIMS}) == len(CLAIMS)


@every_claim
def test_a_true_claim_holds_and_shows_its_figure(claim):
    found = judge(claim, true_tables())
    assert (found.verdict, found.remark) == (HOLDS, "")
    assert any(character.isdigit() for character in found.ours)


@every_claim
def test_a_claim_that_is_false_on_planted_data_does_not_hold(claim):
    tables = true_tables()
    LIES[claim.id](tables)
    found = judge(claim, tables)
    assert (found.verdict, found.remark) == (FAILS, "")
    assert any(character.isdigit() for character in found.ours)


COLUMNS = [
    pytest.param(claim, table, column, id=f"{claim.id}-{column}")
    for claim in CLAIMS
    for table, columns in claim.needs.items()
    for column in columns
    if column not in (*TEXT, "layer", "matched_low")
]


@pytest.mark.parametrize(("claim", "table", "column"), COLUMNS)
def test_what_is_not_defined_never_holds(claim, table, column):
    tables = true_tables()
    tables[table][column] = np.nan
    found = judge(claim, tables)
    assert found.verdict == NOT_APPLICABLE
    assert found.remark


def test_one_undefined_scramble_of_a_head_is_not_passed_over():
    tables = true_tables()
    tables["orientation"].loc[3, "haar_max"] = np.nan
    assert judge(BY_ID["scrambling.highest"], tables).verdict == NOT_APPLICABLE


def test_an_undefined_head_is_in_no_figure():
    tables = true_tables()
    # Head (2, 0) is strong; without a score of its own it is neither strong nor ordinary.
    for table in ("survey", "support", "orientation", "sharing_anchors"):
        row = tables[table].index == 16
        numbers = tables[table].columns.difference(["layer", "head"])
        tables[table].loc[row, numbers] = np.nan
    assert judge(BY_ID["survey.strong"], tables).ours == "5 of 79"
    assert judge(BY_ID["survey.negative"], tables).ours.endswith("of 5")
    assert judge(BY_ID["scrambling.permutation_wins"], tables).ours == "100.00% of 79 heads"
    assert judge(BY_ID["sharing.retrieval"], tables).ours.startswith("5 of 5")


@pytest.mark.parametrize("topology", ["MHA", "MQA"])
def test_claims_on_what_a_topology_lacks_do_not_apply(topology):
    lacking = {
        "MQA": {
            "survey.wrong_v", "survey.wrong_v_chance", "survey.wrong_v_max", "survey.first",
            "factorial.positive", "factorial.control", "sharing.control", "sharing.retrieval",
            "activations.wrong_v",
        },
        "MHA": {claim.id for claim in CLAIMS if claim.id.startswith("sharing.")}
        - {"sharing.retrieval"},
    }[topology]  # fmt: skip
    tables = true_tables(topology=topology)
    found = {claim.id: judge(claim, tables) for claim in CLAIMS}
    assert {name for name, v in found.items() if v.verdict == NOT_APPLICABLE} == lacking
    assert {v.verdict for v in found.values()} == {HOLDS, NOT_APPLICABLE}
    word = {"MQA": "one value head", "MHA": "no two heads share"}[topology]
    assert all(word in found[name].remark for name in lacking)


def test_without_strong_heads_only_their_existence_fails():
    tables = without_strong(true_tables())
    found = {claim.id: judge(claim, tables) for claim in CLAIMS}
    assert [name for name, v in found.items() if v.verdict == FAILS] == ["survey.strong"]
    assert found["survey.strong"].ours == "0 of 80"
    silent = {name for name, v in found.items() if v.verdict == NOT_APPLICABLE}
    assert {"survey.sparse", "survey.negative", "capacity.gap", "sharing.F"} < silent
    assert "no head reaches P ≥ 0.9" in found["survey.negative"].remark


def test_tables_of_another_threshold_are_not_taken():
    tables = true_tables()
    tables["attainment"].attrs["threshold"] = 0.8
    tables["sharing_pairs"].attrs["threshold"] = 0.95
    for name in ("capacity.strong", "sharing.F"):
        found = judge(BY_ID[name], tables)
        assert found.verdict == NOT_RUN
        assert "the claim is about 0.9" in found.remark
    # The blind sample does not depend on it.
    assert judge(BY_ID["capacity.ordinary"], tables).verdict == HOLDS


def test_a_model_that_cannot_run_has_no_function_to_speak_of():
    tables = true_tables()
    for name in ("activations", "function"):
        tables[name].attrs |= {"measured": False, "reason": "no tokenizer"}
    tables["function"] = tables["function"].iloc[:0]
    for claim in CLAIMS:
        if claim.section in ("Natural activations", "Function"):
            assert judge(claim, tables).remark == "no tokenizer"


def test_the_place_beside_the_papers_range_is_told():
    tables = true_tables()
    assert judge(BY_ID["sharing.rho"], tables).place == "within the paper's range"
    tables["sharing_pairs"]["rho"] = 0.95
    found = judge(BY_ID["sharing.rho"], tables)
    assert (found.verdict, found.place) == (HOLDS, "below the paper's range")
    tables["sharing_pairs"]["rho"] = 0.99
    assert judge(BY_ID["sharing.rho"], tables).place == "above the paper's range"


def test_the_papers_own_figures_meet_the_criteria():
    """A reading under which the paper's own models failed would be no fair one."""

    def holds(name, **figures):
        return BY_ID[name].holds(figures)

    for row in paper.ENDPOINTS.itertuples():
        multiple = row.wrong_v_median * paper.HEAD_DIMENSIONS[row.Index] ** 2
        assert holds("survey.strong", strong=row.strong)
        assert holds("survey.sparse", share=row.strong / row.heads)
        assert holds("survey.median", median=row.median)
        assert holds("survey.wrong_v", share=row.wrong_v_median / row.median)
        assert holds("survey.wrong_v_chance", multiple=multiple)
    for row in paper.SHARING.itertuples():
        assert holds("sharing.F", F=row.F)
        assert holds("sharing.rho", rho=row.rho)
        assert holds("sharing.control", control_rho=row.control_rho)
    for row in paper.TRAJECTORY.itertuples():
        assert holds(
            "capacity.attained",
            attainment=row.final_gap_attainment,
            capacity=row.final_gap_capacity,
        )
    for share in paper.SURVEY["negative_alpha"]:
        assert holds("survey.negative", share=share)
    for median in paper.SURVEY["return_gain_medians"]:
        assert holds("survey.gain", median=median)
    iso, study = paper.ISOCLINIC, paper.ORIENTATION
    assert holds("factorization.isoclinic", share=iso["stay_strong"] / iso["strong"])
    areas = {"latent_closure": iso["auroc_latent"], "isotropy": iso["auroc_isotropy"]}
    assert holds("factorization.latent", **areas)
    assert holds("factorization.isotropy", **areas)
    assert holds("factorial.positive", positive=0.955 * 200, layers=200)
    for kind in ("permutation", "haar"):
        wins = {f"{kind}_wins": study[f"{kind}_wins"], "heads": study["heads"]}
        assert holds(f"scrambling.{kind}_wins", **wins)
        share = {f"{kind}_share": study[kind] / study["trained"]}
        assert holds(f"scrambling.{kind}", **share)


def test_shares_are_compared_as_counts():
    assert as_often(71, 72, 0.9864)
    assert as_often(68, 72, 0.9864)  # 94%, but of few
    assert not as_often(6800, 7200, 0.9864)  # 94% of many
    assert not as_often(60, 72, 0.9864)
    assert as_often(5, 6, 0.955)
