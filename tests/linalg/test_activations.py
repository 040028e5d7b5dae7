"""Responses of heads to their own outputs, and changes of factors, against dense operators."""

import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.linalg.activations import isotropic_inputs, output_response
from scaled_idempotence.linalg.algebra import algebra_parts
from scaled_idempotence.linalg.interventions import (
    operator_norm2,
    orientation_changes,
    projection_change,
    random_change,
)


def factors(*batch, d=9, r=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, *batch, d, r, dtype=torch.float64, generator=generator)


def test_the_response_is_that_of_the_dense_operator():
    (O, V), (z, _) = factors(4), factors(4, d=7, seed=1)
    found = output_response(O, V, z)
    for head in range(4):
        T = O[head] @ V[head].T
        y = z[head] @ O[head].T
        Ty = y @ T.T
        cosine = (y * Ty).sum(-1) / (y.norm(dim=-1) * Ty.norm(dim=-1))
        torch.testing.assert_close(found.squared_cosine[head], cosine**2)
        together = (y * Ty).sum() / (y.norm() * Ty.norm())
        torch.testing.assert_close(found.aggregated[head], together**2)
        torch.testing.assert_close(found.rms_gain[head], Ty.norm() / y.norm())


def test_without_preferred_directions_the_aggregate_is_closure():
    """With ``sum z z^T = V^T V`` the sums are the traces of (17)."""
    O, V = factors(5)
    for head in range(5):
        found = output_response(O[head], V[head], V[head])
        torch.testing.assert_close(found.aggregated, si.closure(O[head], V[head]))
        torch.testing.assert_close(found.rms_gain, si.closure_scores(O[head], V[head]).return_gain)


def test_isotropic_inputs_have_the_gram_of_the_values():
    _, V = factors(2)
    z = isotropic_inputs(V, 60_000, [1, 2])
    covariance = z.mT @ z / z.shape[1]
    torch.testing.assert_close(covariance, V.mT @ V, rtol=0.05, atol=0.2)
    assert torch.equal(z, isotropic_inputs(V, 60_000, [1, 2]))


def test_an_exact_head_returns_every_output():
    O, V = factors()
    member = si.nearest_idempotent(O, V)
    found = output_response(member, V, factors(d=7, seed=1)[0])
    torch.testing.assert_close(found.squared_cosine, torch.ones(7, dtype=torch.float64))


def test_an_output_of_nothing_has_no_cosine():
    O, V = factors()
    z = torch.zeros(2, 3, dtype=torch.float64)
    z[1] = 1.0
    cosine = output_response(O, V, z).squared_cosine
    assert cosine.isnan().tolist() == [True, False]


def test_projection_leads_to_the_nearest_member():
    O, V = factors(3)
    torch.testing.assert_close(O + projection_change(O, V), si.nearest_idempotent(O, V))


@pytest.mark.parametrize("returning", [False, True])
def test_random_changes_are_as_large_as_the_projection(returning):
    O, V = factors()
    change = projection_change(O, V)
    size = torch.linalg.matrix_norm(change @ V.T)
    torch.testing.assert_close(operator_norm2(change, V).sqrt(), size)
    drawn = [random_change(change, V, "model", 0, n, returning=returning) for n in range(3)]
    for one in drawn:
        torch.testing.assert_close(torch.linalg.matrix_norm(one @ V.T), size)
    again = random_change(change, V, "model", 0, 1, returning=returning)
    assert torch.equal(again, drawn[1])
    assert not torch.allclose(drawn[0], drawn[1])


def test_random_returns_keep_the_scale_and_the_oblique_part():
    O, V = factors()
    drawn = random_change(projection_change(O, V), V, "x", returning=True)
    before, after = algebra_parts(O, V), algebra_parts(O + drawn, V)
    torch.testing.assert_close(after.a, before.a)
    torch.testing.assert_close(after.N, before.N)
    plain = random_change(projection_change(O, V), V, "x")
    assert not torch.allclose(algebra_parts(O + plain, V).N, before.N)


def test_the_orientation_path_ends_where_it_should():
    O, V = factors(d=12, r=5)
    K, cosines, _, _ = si.principal_coordinates(O, V)
    s, U_L, U_R = si.trained_orientation(K)
    end = si.shifted_pairing(s, cosines)
    t = torch.tensor([-0.5, 0.0, 1.0], dtype=torch.float64)
    changes = orientation_changes(O, V, (U_L, U_R), end, s, t)
    assert torch.equal(changes[1], torch.zeros_like(O))
    # r is odd: nothing has to be flipped, so the path ends at the orientation itself.
    reached = si.closure(O + changes[2], V)
    torch.testing.assert_close(reached, si.closure_of_orientation(s, cosines, *end))
    for change in changes:
        moved = si.singular_values(O + change, V)
        torch.testing.assert_close(moved, si.singular_values(O, V))
