"""Products of siblings and the algebra A_V against dense d x d products."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from scaled_idempotence.linalg.algebra import (
    ANCHOR_REASONS,
    V_DEFICIENT,
    algebra_element,
    algebra_parts,
    anchor_scores,
    dual_basis,
    free_part,
    in_algebra,
    nearest_idempotent,
)
from scaled_idempotence.linalg.closure import closure_scores
from scaled_idempotence.linalg.factors import EPS, value_head_index
from scaled_idempotence.linalg.gain import (
    ACTION_REASONS,
    PRODUCT_ZERO,
    domination,
    inheritance_bound,
    next_group_scores,
    sibling_cosines,
    sibling_scores,
)
from scaled_idempotence.linalg.subspaces import kernel_angles, principal_angles, range_angles

TOLERANCE = 1e-10
seeds = st.integers(0, 2**31)
# r < d leaves room for oblique parts.
shapes = st.integers(1, 5).flatmap(lambda r: st.tuples(st.integers(r + 1, 12), st.just(r)))
scales = st.sampled_from([1e-60, 1e-3, 1.0, 1e5, 1e60])


def draw(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def members(seed, count, d, r):
    """Factors of `count` elements of one algebra, their scales, and its V in a skewed gauge."""
    V = draw(seed, d, r) @ (torch.eye(r, dtype=torch.float64) + 0.3 * draw(seed + 1, r, r))
    a = draw(seed + 2, count)
    a = torch.where(a < 0, a - 0.5, a + 0.5)
    return algebra_element(a, free_part(draw(seed + 3, count, d, r), V), V), a, V


def dense_scores(left, right, alpha):
    """The definitions of section 7 on d x d matrices."""
    product = left @ right
    norm2, inner = product.square().sum(), (product * left).sum()
    residual = (product - alpha * left).square().sum()
    left2, right2 = left.square().sum(), right.square().sum()
    return {
        "right_product_closure": inner**2 / (norm2 * left2),
        "left_product_closure": (product * right).sum() ** 2 / (norm2 * right2),
        "F": 1 - residual / norm2,
        "beta": inner / left2,
        "rho": inner / left2 / alpha,
        "residual": residual,
        "band_residual": residual / (alpha**2 * left2),
    }


def dense_alpha(T):
    return (T @ T * T).sum() / T.square().sum()


def assert_entry(table, index, expected, left, right, unit=1.0):
    """Compare to 1e-10 of each quantity's own size: 1, or the power of |T| that it has."""
    T_i, T_j = torch.linalg.matrix_norm(left).item(), torch.linalg.matrix_norm(right).item()
    sizes = {"beta": T_j * unit, "residual": (x := T_i * T_j * unit * unit) * x}
    for name, value in expected.items():
        size = sizes.get(name, max(1.0, abs(value.item())))
        if name == "beta":
            value = value * unit
        if name == "residual":
            if not 1e-290 < size < 1e290:
                continue  # |T|^4 itself over- or underflows
            value = value * unit**4
        got = getattr(table, name)[index]
        assert abs(got - value) <= TOLERANCE * size, (name, index, got, value)


class TestProducts:
    @given(seeds, shapes, st.integers(1, 4), scales, scales)
    @settings(max_examples=40, deadline=None)
    def test_siblings_equal_dense_products(self, seed, shape, S, o_scale, v_scale):
        d, r = shape
        # A common part keeps alpha away from 0, where no method could keep relative digits.
        V = draw(seed, d, r)
        O = draw(seed + 1, S, d, r) + V
        table = sibling_scores(o_scale * O, v_scale * V)
        T = O @ V.mT
        unit = o_scale * v_scale
        for i in range(S):
            for j in range(S):
                expected = dense_scores(T[i], T[j], dense_alpha(T[j]))
                assert_entry(table, (i, j), expected, T[i], T[j], unit)
        assert (table.status == 0).all()

    @given(seeds, shapes, st.integers(2, 4), st.integers(1, 3))
    @settings(max_examples=40, deadline=None)
    def test_control_is_the_same_slot_of_the_next_group(self, seed, shape, G, S):
        d, r = shape
        V = draw(seed, G, d, r)
        O = draw(seed + 1, G, S, d, r) + V[:, None]
        table = next_group_scores(O, V)
        T = O @ V[:, None].mT
        for g in range(G):
            for i in range(S):
                for j in range(S):
                    control = T[(g + 1) % G, i]
                    expected = dense_scores(control, T[g, j], dense_alpha(T[g, j]))
                    assert_entry(table, (g, i, j), expected, control, T[g, j])

    @given(seeds, shapes)
    @settings(max_examples=20, deadline=None)
    def test_the_diagonal_is_the_closure(self, seed, shape):
        V, O = draw(seed, *shape), draw(seed + 1, 3, *shape)
        table, own = sibling_scores(O, V), closure_scores(O, V)
        for scores in (table.right_product_closure, table.left_product_closure, table.F):
            torch.testing.assert_close(scores.diagonal(), own.closure, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(table.beta.diagonal(), own.alpha, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(table.rho.diagonal(), torch.ones(3, dtype=torch.float64))

    def test_right_and_left_are_not_exchanged(self):
        # |e1><e1| and (e1 + e2)<e1|: the product is the left factor, at 45 degrees to the right.
        V = torch.tensor([[1.0], [0.0]])
        table = sibling_scores(torch.tensor([[[1.0], [0.0]], [[1.0], [1.0]]]), V)
        torch.testing.assert_close(table.right_product_closure, torch.ones(2, 2).double())
        assert table.left_product_closure[0, 1] == pytest.approx(0.5)
        assert table.left_product_closure[1, 0] == pytest.approx(0.5)

    def test_alpha_is_not_refitted(self):
        # T_i T_j is proportional to T_i, by a scale that is not alpha_j: F must see it.
        V = torch.eye(3, 2).double()
        left = torch.zeros(3, 2).double()
        left[2, 0] = 1.0  # reads the first value only, which T_j scales by 1; alpha_j = 2.2
        right = torch.zeros(3, 2).double()
        right[0, 0], right[1, 1] = 1.0, 3.0
        table = sibling_scores(torch.stack([left, right]), V)
        alpha = 28 / 10
        assert table.right_product_closure[0, 1] == pytest.approx(1.0)
        assert table.rho[0, 1] == pytest.approx(1 / alpha)
        assert table.F[0, 1] == pytest.approx(1 - (1 - alpha) ** 2)

    def test_an_ill_conditioned_value_gauge_costs_nothing(self):
        d, r, S = 16, 4, 3
        V, O = draw(0, d, r), draw(1, S, d, r)
        gauge = torch.diag(torch.tensor([1.0, 1e-3, 1e-6, 1e-9]).double())
        skewed = sibling_scores(O @ torch.linalg.inv(gauge), V @ gauge)
        for got, expected in zip(skewed, sibling_scores(O, V), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)

    def test_undefined_pairs_have_a_reason_and_spoil_no_others(self):
        V, O = draw(0, 8, 2), draw(1, 6, 8, 2)
        whole = sibling_scores(O, V)
        broken = O.clone()
        broken[1] = 0.0
        broken[2, 0, 0] = torch.nan
        broken[3] = free_part(O[3], V)  # V^T O = 0: nilpotent
        table = sibling_scores(broken, V)
        reasons = [[ACTION_REASONS[code] for code in row] for row in table.status.tolist()]
        assert "zero" in reasons[0][1]
        assert "zero" in reasons[1][0]
        assert "finite" in reasons[0][2]
        assert "finite" in reasons[2][1]
        assert "alpha_j" in reasons[0][3]
        assert reasons[3][0] == ""
        for j in (1, 2, 3):
            assert table.F[0, j].isnan()
            assert table.rho[0, j].isnan()
            assert table.right_product_closure[0, j].isnan()
        sound = torch.tensor([0, 4, 5])
        for got, expected in zip(table, whole, strict=True):
            torch.testing.assert_close(got[sound][:, sound], expected[sound][:, sound])

    def test_an_operator_that_cancels_is_zero(self):
        # O and V are far from zero, their product is rounding.
        a, b = draw(0, 2, 3)
        b = b - a * (a @ b) / (a @ a)
        V, O = draw(1, 9, 1) * b, draw(2, 2, 9, 3)
        O[1] = draw(3, 9, 1) * a
        table = sibling_scores(O, V)
        assert ACTION_REASONS[table.status[0, 1]] == "an operator of the pair is zero to rounding"
        assert table.status[0, 0] == 0

    def test_a_product_that_vanishes_is_named(self):
        # T_j writes only what T_i does not read.
        V = torch.eye(4, 2).double()
        left, right = torch.zeros(2, 4, 2).double()
        left[2, 0] = 1.0
        right[1, 1] = right[3, 0] = 1.0
        table = sibling_scores(torch.stack([left, right]), V)
        assert ACTION_REASONS[table.status[0, 1]] == "T_i T_j is zero to rounding"
        assert table.right_product_closure[0, 1].isnan()
        assert table.F[0, 1].isnan()
        assert table.rho[0, 1] == 0

    def test_one_group_has_no_control(self):
        table = next_group_scores(draw(0, 1, 4, 8, 2), draw(1, 1, 8, 2))
        assert table.F.shape == (1, 4, 4)
        assert table.F.isnan().all()
        assert table.rho.isnan().all()

    def test_a_broken_left_head_spoils_its_own_control_only(self):
        V, O = draw(0, 3, 8, 2), draw(1, 3, 2, 8, 2)
        whole = next_group_scores(O, V)
        O[1, 0, 0, 0] = torch.nan  # left of group 0, right of group 1
        table = next_group_scores(O, V)
        broken = torch.zeros(3, 2, 2, dtype=torch.bool)
        broken[0, 0, :] = broken[1, :, 0] = True
        assert torch.equal(table.F.isnan(), broken)
        assert {ACTION_REASONS[code] for code in table.status[broken]} == {ACTION_REASONS[1]}
        torch.testing.assert_close(table.F[~broken], whole.F[~broken])

    def test_wrong_shapes_are_refused(self):
        with pytest.raises(ValueError, match=r"unflatten\(0, \(G, H // G\)\)"):
            sibling_scores(draw(0, 9, 8, 2), draw(1, 3, 8, 2))
        with pytest.raises(ValueError, match=r"G, S, d, r"):
            next_group_scores(draw(0, 3, 8, 2), draw(1, 8, 2))
        with pytest.raises(ValueError, match="same d and r"):
            sibling_scores(draw(0, 3, 8, 2), draw(1, 8, 3))

    def test_no_d_by_d_matrix_is_formed(self):
        d, r, G, S = 37, 3, 4, 2
        V, O = draw(0, G, d, r), draw(1, G, S, d, r)
        value_head = value_head_index(G * S, G)
        heads = O.flatten(0, 1)

        class NoDense(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                for x in result if isinstance(result, (tuple, list)) else (result,):
                    if isinstance(x, torch.Tensor):
                        assert list(x.shape).count(d) < 2, (function, x.shape)
                return result

        with NoDense():
            sibling_scores(O, V)
            next_group_scores(O, V)
            sibling_cosines(O, V)
            domination(heads[:3], heads[1:4])
            range_angles(heads[0], heads[1], V[0])
            kernel_angles(heads[0], heads[1], V[0])
            nearest_idempotent(heads, V[value_head])
            anchor_scores(heads, V, value_head, closure_scores(heads, V[value_head]))
            with pytest.raises(AssertionError):
                O[0, 0] @ V[0].mT  # the guard sees what it is there for


class TestAlgebra:
    @given(seeds, shapes)
    @settings(max_examples=40, deadline=None)
    def test_elements_multiply_as_stated(self, seed, shape):
        O, a, V = members(seed, 2, *shape)
        X, Y = O @ V.mT
        scale = torch.linalg.matrix_norm(X) * torch.linalg.matrix_norm(Y)
        for left, right, b in ((X, Y, a[1]), (Y, X, a[0]), (X, X, a[0]), (Y, Y, a[1])):
            assert torch.linalg.matrix_norm(left @ right - b * left) <= TOLERANCE * scale

    @given(seeds, shapes)
    @settings(max_examples=20, deadline=None)
    def test_sums_and_products_stay_inside(self, seed, shape):
        O, a, V = members(seed, 2, *shape)
        assert in_algebra(O, V).all()
        total = algebra_parts(O[0] + 3 * O[1], V)
        torch.testing.assert_close(total.a, a[0] + 3 * a[1])
        # X Y = X_factor (V^T Y_factor) V^T
        product = algebra_parts(O[0] @ (V.mT @ O[1]), V)
        torch.testing.assert_close(product.a, a[0] * a[1])
        assert product.remainder_energy <= 1e-20

    @given(seeds, shapes)
    @settings(max_examples=40, deadline=None)
    def test_scaled_idempotents_are_members(self, seed, shape):
        # T^2 = a T made without the algebra: a eigenspace of dimension r, then any factors of T.
        d, r = shape
        basis = draw(seed, d, d) + 3 * torch.eye(d, dtype=torch.float64)
        gauge = draw(seed + 1, r, r) + 3 * torch.eye(r, dtype=torch.float64)
        a = -1.7
        inverse = torch.linalg.inv(basis)
        O, V = a * basis[:, :r] @ gauge, inverse[:r].mT @ torch.linalg.inv(gauge).mT
        T = O @ V.mT
        torch.testing.assert_close(T @ T, a * T, rtol=1e-8, atol=1e-8 * T.abs().max().item())
        assert in_algebra(O, V, rtol=1e-9)
        assert algebra_parts(O, V).a.item() == pytest.approx(a, rel=1e-8)

    @given(seeds, shapes, st.floats(1e-6, 10.0))
    @settings(max_examples=40, deadline=None)
    def test_distance_to_the_algebra_brackets_the_failure_of_the_law(self, seed, shape, size):
        # T^2 - a T = W (Q^T W - a I) Q^T, so for O of full rank the one vanishes with the other.
        d, r = shape
        member, _, V = members(seed, 1, d, r)
        O = member[0] + size * draw(seed + 9, d, r)
        parts = algebra_parts(O, V)
        T = O @ V.mT
        failure = torch.linalg.matrix_norm(T @ T - parts.a * T)
        remainder = torch.linalg.matrix_norm(parts.remainder @ V.mT)
        s = torch.linalg.svdvals(T)[:r]
        slack = 1e-12 * s[0] ** 2
        assert s[-1] * remainder - slack <= failure <= s[0] * remainder + slack
        # For r = 1 every rank-one operator is in the algebra; else a perturbation leaves it.
        assert bool(in_algebra(O, V)) == (r == 1)

    def test_the_converse_needs_an_output_factor_of_full_rank(self):
        V = torch.eye(4, 2).double()
        O = torch.zeros(4, 2).double()
        O[0, 0], O[3, 0] = 1.0, 2.0
        T = O @ V.mT
        assert torch.equal(T @ T, T)
        assert not in_algebra(O, V)
        assert in_algebra(O[:, :1], V[:, :1])  # over its own row space it is a member

    def test_nilpotent_and_zero_members(self):
        V = draw(0, 6, 2)
        N = free_part(draw(1, 6, 2), V)
        assert in_algebra(N, V)
        assert algebra_parts(N, V).a.abs() < 1e-15
        assert in_algebra(torch.zeros(6, 2), V)

    @given(seeds, shapes, st.floats(-20, 20))
    @settings(max_examples=40, deadline=None)
    def test_decomposition(self, seed, shape, log_gauge):
        d, r = shape
        V, O = draw(seed, d, r), draw(seed + 1, d, r)
        V, O = V * 2.0**log_gauge, O / 2.0**log_gauge
        parts = algebra_parts(O, V)
        C = dual_basis(V)
        torch.testing.assert_close(C, V @ torch.linalg.inv(V.mT @ V), rtol=1e-7, atol=1e-10)
        terms = [parts.a * C, parts.N, parts.remainder]
        size = torch.linalg.matrix_norm(O) + torch.linalg.matrix_norm(parts.a * C)
        assert torch.linalg.matrix_norm(sum(terms) - O) <= TOLERANCE * size
        norm = torch.linalg.matrix_norm
        assert norm(V.mT @ parts.N) <= TOLERANCE * norm(V) * norm(O)
        M = V.mT @ O
        expected = C @ (M - parts.a * torch.eye(r, dtype=torch.float64))
        assert norm(parts.remainder - expected) <= 1e-9 * size * max(1, (norm(C) * norm(V)).item())
        # Shares of the three dense terms, which add up.
        T2 = (O @ V.mT).square().sum()
        energies = (parts.anchor_energy, parts.oblique_energy, parts.remainder_energy)
        for term, share in zip(terms, energies, strict=True):
            assert abs((term @ V.mT).square().sum() / T2 - share) <= 1e-9
        assert sum(energies).item() == pytest.approx(1.0, abs=TOLERANCE)
        P_V = C @ V.mT
        cosine2 = ((O @ V.mT) * P_V).sum() ** 2 / (T2 * P_V.square().sum())
        assert abs(cosine2 - parts.anchor_energy) <= 1e-9

    @given(seeds, shapes)
    @settings(max_examples=40, deadline=None)
    def test_nearest_member(self, seed, shape):
        d, r = shape
        V, O = draw(seed, d, r), draw(seed + 1, d, r)
        nearest, parts = nearest_idempotent(O, V), algebra_parts(O, V)
        T, near = O @ V.mT, nearest @ V.mT
        size = torch.linalg.matrix_norm(near) ** 2
        assert torch.linalg.matrix_norm(near @ near - parts.a * near) <= TOLERANCE * size
        # a against the least squares of |C_V (M - a I) V^T| over dense matrices.
        C = dual_basis(V)
        inner, anchor = C @ (V.mT @ O) @ V.mT, C @ V.mT
        fitted = (inner * anchor).sum() / anchor.square().sum()
        assert abs(parts.a - fitted) <= TOLERANCE * max(1.0, fitted.abs().item()) * 10
        # No other member is nearer, also with other scales or oblique parts.
        distance = torch.linalg.matrix_norm(T - near)
        for step in (1e-3, -1e-3, 0.5):
            other = algebra_element(parts.a + step, parts.N, V) @ V.mT
            assert torch.linalg.matrix_norm(T - other) > distance
            shifted = parts.N + step * free_part(draw(seed + 2, d, r), V)
            other = algebra_element(parts.a, free_part(shifted, V), V) @ V.mT
            assert torch.linalg.matrix_norm(T - other) > distance
        again = nearest_idempotent(nearest, V)
        torch.testing.assert_close(again, nearest, rtol=1e-8, atol=1e-9)

    def test_batches_are_the_heads_one_by_one(self):
        V, O = draw(0, 2, 1, 9, 3), draw(1, 2, 4, 9, 3)
        batch = nearest_idempotent(O, V)
        for g in range(2):
            for i in range(4):
                torch.testing.assert_close(batch[g, i], nearest_idempotent(O[g, i], V[g, 0]))
        from_numpy = nearest_idempotent(O.numpy(), V.numpy())
        assert torch.equal(from_numpy, batch)

    def test_a_python_scale_keeps_its_digits(self):
        V = draw(0, 5, 2)
        O = algebra_element(0.1, torch.zeros(5, 2), V)
        torch.testing.assert_close(V.mT @ O, 0.1 * torch.eye(2).double(), rtol=0, atol=1e-15)

    def test_a_deficient_value_factor_is_named(self):
        V = draw(0, 3, 6, 2)
        V[1, :, 1] = 2 * V[1, :, 0]
        O = draw(1, 3, 6, 2)
        message = r"V\[1\] has numerical rank 1, expected full column rank r = 2"
        for function in (nearest_idempotent, algebra_parts, in_algebra, free_part):
            with pytest.raises(ValueError, match=message):
                function(O, V)
        with pytest.raises(ValueError, match=message):
            dual_basis(V)
        with pytest.raises(ValueError, match="V has numerical rank 0"):
            nearest_idempotent(O[0], torch.zeros(6, 2))

    def test_weights_that_are_not_finite_are_named(self):
        O, V = draw(0, 6, 2), draw(1, 6, 2)
        O[0, 0] = torch.inf
        with pytest.raises(ValueError, match="not finite"):
            nearest_idempotent(O, V)
        with pytest.raises(ValueError, match="not finite"):
            dual_basis(O)

    def test_an_oblique_part_must_be_oblique(self):
        V = draw(0, 6, 2)
        # What is left of a factor that is almost within V is as orthogonal, for its size.
        N = free_part(V + 1e-9 * draw(1, 6, 2), V)
        assert torch.linalg.matrix_norm(V.mT @ N) < 1e-14 * torch.linalg.matrix_norm(N)
        assert in_algebra(algebra_element(1.0, N, V), V)
        with pytest.raises(ValueError, match=r"Pass free_part\(N, V\)"):
            algebra_element(1.0, draw(1, 6, 2), V)


class TestBand:
    @given(seeds, shapes)
    @settings(max_examples=30, deadline=None)
    def test_normalised_members_are_a_left_zero_band(self, seed, shape):
        O, a, V = members(seed, 3, *shape)
        table = sibling_scores(O, V)
        assert (table.band_residual <= 1e-18).all()
        torch.testing.assert_close(table.right_product_closure, torch.ones(3, 3).double())
        torch.testing.assert_close(table.rho, torch.ones(3, 3).double())
        P = (O / a[:, None, None]) @ V.mT
        scale = P.abs().max().item() ** 2
        torch.testing.assert_close(P[0] @ P[1], P[0], rtol=1e-9, atol=TOLERANCE * max(1.0, scale))

    def test_the_law_is_the_right_actions_alone(self):
        O, _, V = members(0, 3, 9, 3)
        off = ~torch.eye(3, dtype=torch.bool)
        assert (sibling_scores(O, V).left_product_closure[off] < 0.9).all()

    def test_members_of_different_algebras_are_no_band(self):
        O, _, V = members(0, 2, 12, 3)
        O2, _, V2 = members(100, 2, 12, 3)
        control = next_group_scores(torch.stack([O, O2]), torch.stack([V, V2]))
        assert (control.F < 0).any()
        assert (control.right_product_closure < 0.9).all()

    @given(seeds, shapes)
    @settings(max_examples=20, deadline=None)
    def test_band_residual_is_that_of_normalised_operators(self, seed, shape):
        V = draw(seed, *shape)
        O = draw(seed + 1, 2, *shape) + V
        T = O @ V.mT
        P = [X / dense_alpha(X) for X in T]
        expected = (P[0] @ P[1] - P[0]).square().sum() / P[0].square().sum()
        got = sibling_scores(O, V).band_residual[0, 1]
        assert abs(got - expected) <= 1e-9 * max(1.0, expected.item())

    @given(seeds, shapes)
    @settings(max_examples=20, deadline=None)
    def test_sibling_cosines(self, seed, shape):
        V, O = draw(seed, *shape), draw(seed + 1, 3, *shape)
        T = (O @ V.mT).flatten(1)
        expected = torch.corrcoef(torch.cat([T, -T], dim=1))[:, :].square()  # mean-free, so cosines
        got = sibling_cosines(O, V)
        torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE)


class TestDomination:
    @given(seeds, shapes, scales)
    @settings(max_examples=40, deadline=None)
    def test_equals_the_generalised_eigenvalue_of_the_grams(self, seed, shape, scale):
        left, right = draw(seed, *shape), draw(seed + 1, *shape)
        expected = scipy.linalg.eigvalsh((left.mT @ left).numpy(), (right.mT @ right).numpy())[-1]
        condition = torch.linalg.cond(right).item()
        got = domination(scale * left, right).item() / scale**2
        assert got == pytest.approx(expected, rel=1e-13 * max(condition**2, 1e3))

    def test_batches(self):
        O = draw(0, 4, 9, 3)
        table = domination(O[:, None], O[None])
        assert table.shape == (4, 4)
        torch.testing.assert_close(table.diagonal(), torch.ones(4).double())
        assert table[1, 2] == pytest.approx(domination(O[1], O[2]).item())

    @given(seeds, st.integers(2, 5), st.floats(-11, 0))
    @settings(max_examples=40, deadline=None)
    def test_near_singular_right_factors(self, seed, r, exponent):
        # O_j = Q diag(1, ..., 1, t), O_i = Q': gamma is 1 / t^2 whatever common gauge hides it.
        t = 10.0**exponent
        d = 12
        left = torch.linalg.qr(draw(seed, d, r)).Q
        right = torch.linalg.qr(draw(seed + 1, d, r)).Q.clone()
        right[:, -1] *= t
        gauge = torch.linalg.qr(draw(seed + 2, r, r)).Q
        gamma = domination(left @ gauge, right @ gauge).item()
        assert gamma == pytest.approx(t**-2, rel=100 * r * EPS / t)

    def test_a_common_gauge_does_not_matter(self):
        left, right = draw(0, 9, 3), draw(1, 9, 3)
        gauge = torch.diag(torch.tensor([1.0, 1e-7, 1e-20]).double())
        expected = domination(left, right)
        torch.testing.assert_close(domination(left @ gauge, right @ gauge), expected)

    def test_singular_cases_have_their_meanings(self):
        left, right = draw(0, 9, 3), draw(1, 9, 3)
        singular = right.clone()
        singular[:, 1] = singular[:, 0]
        assert domination(left, singular) == torch.inf
        # A direction that both map to zero is no obstacle.
        both = left.clone()
        both[:, 1] = both[:, 0]
        reduced = [torch.stack([x[:, 0], x[:, 2]], dim=1) for x in (both, singular)]
        assert domination(both, singular).item() == pytest.approx(domination(*reduced).item())
        assert domination(torch.zeros(9, 3), right) == 0
        assert domination(torch.zeros(9, 3), torch.zeros(9, 3)) == 0
        assert domination(left, torch.zeros(9, 3)) == torch.inf
        broken = left.clone()
        broken[0, 0] = torch.nan
        gammas = domination(torch.stack([broken, left]), right)
        assert gammas[0].isnan()
        assert gammas[1] == domination(left, right)


class TestBound:
    @given(seeds, shapes, st.sampled_from([1.0, 1e-2, 1e-5, 1e-8, 1e-11]))
    @settings(max_examples=80, deadline=None)
    def test_residual_stays_below_the_bound(self, seed, shape, t):
        # t = 1 is a random O_j; below, one of its directions almost vanishes.
        d, r = shape
        V, O = draw(seed, d, r), draw(seed + 1, 2, d, r)
        gauge = torch.linalg.qr(draw(seed + 2, r, r)).Q
        weights = torch.ones(r, dtype=torch.float64)
        weights[-1] = t
        O[1] = O[1] @ gauge @ torch.diag(weights) @ gauge.mT
        table = sibling_scores(O, V)
        gamma = domination(O[0], O[1])
        bound = inheritance_bound(gamma, table.residual[1, 1])
        sine = 1 / (1 + gamma * O[1].square().sum() / O[0].square().sum()).sqrt()
        assert gamma.isfinite()
        assert table.residual[0, 1] <= bound * (1 + 100 * r * EPS / sine) + 1e-300
        # Dense as well: nothing about the bound is an artefact of how the residual is computed.
        T = O @ V.mT
        alpha = dense_alpha(T[1])
        own = (T[1] @ T[1] - alpha * T[1]).square().sum()
        dense = (T[0] @ T[1] - alpha * T[0]).square().sum()
        rounding = 1e-13 * T[0].square().sum() * T[1].square().sum()
        assert dense <= gamma * (own + 1e-24 * T[1].square().sum() ** 2) * (1 + 1e-4) + rounding

    @given(seeds)
    @settings(max_examples=20, deadline=None)
    def test_the_bound_is_attained_and_so_can_fail(self, seed):
        # X = M_j - alpha I of rank one, along the direction where gamma is attained.
        d, r = 8, 2
        V = torch.eye(d, r).double()
        t = 0.01
        right = torch.zeros(d, r).double()
        right[0, 0], right[1, 1], right[2, 1] = 1.0, t, 1e-9
        left = free_part(draw(seed, d, r), V)
        left[:, 0] = 0.0  # writes the second value only, which O_j almost does not
        table = sibling_scores(torch.stack([left, right]), V)
        gamma = domination(left, right)
        bound = inheritance_bound(gamma, table.residual[1, 1])
        own_second = (t - dense_alpha(right @ V.mT)) ** 2 * t**2
        share = own_second / table.residual[1, 1]
        assert (table.residual[0, 1] / bound).item() == pytest.approx(share.item(), rel=1e-6)
        assert table.residual[0, 1] > 0.9 * bound

    def test_rank_one_attains_it(self):
        # No residual for r = 1; at r = 2 with a common worst direction the ratio is 1.
        V = torch.eye(5, 2).double()
        right = torch.zeros(5, 2).double()
        right[0, 0], right[1, 1] = 1.0, 2.0
        table = sibling_scores(torch.stack([3 * right, right]), V)
        assert domination(3 * right, right) == pytest.approx(9.0)
        bound = inheritance_bound(domination(3 * right, right), table.residual[1, 1])
        assert table.residual[0, 1].item() == pytest.approx(bound.item(), rel=1e-12)

    def test_an_infinite_gamma_is_no_bound_even_at_zero(self):
        gamma = torch.tensor([torch.inf, torch.inf, 2.0, torch.nan]).double()
        own = torch.tensor([0.0, torch.nan, 3.0, 1.0]).double()
        bound = inheritance_bound(gamma, own)
        assert bound[0] == torch.inf
        assert bound[1].isnan()
        assert bound[2] == 6
        assert bound[3].isnan()


class TestAngles:
    @given(seeds, st.integers(2, 9), st.integers(1, 4))
    @settings(max_examples=30, deadline=None)
    def test_equal_scipy(self, seed, m, n):
        n = min(m, n)
        X, Y = draw(seed, m, n), draw(seed + 1, m, n)
        expected = np.sort(scipy.linalg.subspace_angles(X.numpy(), Y.numpy()))
        np.testing.assert_allclose(principal_angles(X, Y), expected, rtol=1e-7, atol=1e-7)

    @pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-5, 0.7, math.pi / 2 - 1e-9, math.pi / 2])
    def test_small_and_right_angles_are_exact(self, angle):
        X, Y = torch.zeros(2, 4, 2).double()
        X[0, 0] = Y[0, 0] = X[1, 1] = 1.0
        Y[1, 1], Y[2, 1] = math.cos(angle), math.sin(angle)
        angles = principal_angles(X, Y)
        assert angles[0].item() == pytest.approx(0.0, abs=1e-15)
        assert angles[1].item() == pytest.approx(angle, abs=1e-15)

    def test_deficient_columns_span_nothing(self):
        X, Y = draw(0, 6, 3), draw(1, 6, 3)
        X[:, 2] = X[:, 0] - X[:, 1]
        for pair in ((X, Y), (Y, X)):
            angles = principal_angles(*pair)
            expected = np.sort(scipy.linalg.subspace_angles(X[:, :2].numpy(), Y.numpy()))
            np.testing.assert_allclose(angles[:2], expected, rtol=1e-9)
            assert angles[2].isnan()
        assert principal_angles(torch.zeros(6, 3), Y).isnan().all()

    def test_siblings_share_the_kernel_and_not_the_range(self):
        V, O = draw(0, 9, 3), draw(1, 2, 9, 3)
        assert kernel_angles(O[0], O[1], V).max() < 1e-14
        T = O @ V.mT
        expected = np.sort(scipy.linalg.subspace_angles(T[0].numpy() @ V.numpy(), O[1].numpy()))
        np.testing.assert_allclose(range_angles(O[0], O[1], V), expected, rtol=1e-9)
        assert range_angles(O[0], O[1], V).min() > 0.1
        # Same range, other coordinates.
        assert range_angles(O[0], O[0] @ draw(2, 3, 3), V).max() < 1e-13

    def test_deficient_siblings_can_differ_in_their_kernels(self):
        V, O = draw(0, 9, 3), draw(1, 2, 9, 3)
        O[0, :, 2] = 0.0
        O[1, :, 0] = 0.0
        angles = kernel_angles(O[0], O[1], V)
        rows = [torch.linalg.qr((O[k] @ V.mT).mT @ draw(3, 9, 2)).Q.numpy() for k in range(2)]
        np.testing.assert_allclose(
            angles[:2], np.sort(scipy.linalg.subspace_angles(*rows)), atol=1e-9
        )
        assert angles[1] > 0.1
        assert angles[2].isnan()


class TestAnchors:
    def layer(self, seed=0, G=4, S=2, d=24, r=3, noise=0.02):
        """Members of the groups' algebras with some noise."""
        V = draw(seed, G, d, r)
        value_head = value_head_index(G * S, G)
        own = V[value_head]
        a = 1.0 + 0.5 * torch.arange(G * S, dtype=torch.float64)
        O = algebra_element(a, free_part(0.2 * draw(seed + 1, G * S, d, r), own), own)
        return O + noise * draw(seed + 2, G * S, d, r), V, value_head

    def scores(self, O, V, value_head):
        return anchor_scores(O, V, value_head, closure_scores(O, V[value_head]))

    def test_equals_dense(self):
        O, V, value_head = self.layer()
        anchors = self.scores(O, V, value_head)
        P = V @ torch.linalg.inv(V.mT @ V) @ V.mT
        for h, T in enumerate(O @ V[value_head].mT):
            for g in range(4):
                cosine2 = (T * P[g]).sum() ** 2 / (T.square().sum() * P[g].square().sum())
                assert anchors.retrieval[h, g].item() == pytest.approx(
                    cosine2.item(), abs=TOLERANCE
                )
            own = P[value_head[h]]
            oblique = (T - own @ T).square().sum() / T.square().sum()
            assert anchors.oblique_energy[h].item() == pytest.approx(oblique.item(), abs=TOLERANCE)
            trained = anchors.retrieval[h, value_head[h]]
            assert anchors.anchor_cosine[h].item() == pytest.approx(trained.item(), abs=TOLERANCE)
        total = anchors.anchor_cosine + anchors.oblique_energy + anchors.remainder_energy
        torch.testing.assert_close(total, torch.ones(8).double())

    def test_retrieval_finds_planted_heads_and_only_those(self):
        O, V, value_head = self.layer()
        assert (self.scores(O, V, value_head).retrieval_rank == 1).all()
        # Heads that read their own V with no trace over it, and write over the next group's.
        own, following = V[value_head], V[(value_head + 1) % 4]
        off = free_part(own, following)
        over = own - off
        c = (over * own).sum((1, 2)) / (off * own).sum((1, 2))
        elsewhere = self.scores(over - c[:, None, None] * off, V, value_head)
        assert (elsewhere.anchor_cosine < 1e-20).all()
        assert (elsewhere.retrieval_rank > 1).all()
        next_head = (value_head + 1) % 4
        assert (elsewhere.retrieval[torch.arange(8), next_head] > 1e-4).all()

    def test_undefined_heads_have_a_reason_and_spoil_no_others(self):
        O, V, value_head = self.layer()
        whole = self.scores(O, V, value_head)
        V, O = V.clone(), O.clone()
        V[1, :, 2] = V[1, :, 0]
        O[0] = 0.0
        O[7, 0, 0] = torch.inf
        anchors = self.scores(O, V, value_head)
        reasons = [ANCHOR_REASONS[code] for code in anchors.status.tolist()]
        assert "zero" in reasons[0]
        assert "full column rank" in reasons[2]
        assert "full column rank" in reasons[3]
        assert "finite" in reasons[7]
        for values in (anchors.anchor_cosine, anchors.oblique_energy, anchors.retrieval_rank):
            assert values.isnan().tolist() == [True, False, True, True, False, False, False, True]
        assert anchors.retrieval[1, 1].isnan()  # the deficient factor does not compete
        sound = torch.tensor([1, 4, 5, 6])
        torch.testing.assert_close(anchors.anchor_cosine[sound], whole.anchor_cosine[sound])
        torch.testing.assert_close(anchors.retrieval_rank[sound], whole.retrieval_rank[sound])

    def test_one_value_head_ranks_first_of_one(self):
        O, V, value_head = self.layer(G=1, S=4)
        assert self.scores(O, V, value_head).retrieval_rank.tolist() == [1, 1, 1, 1]


def test_reasons_cover_every_status():
    assert len(ACTION_REASONS) - 1 == PRODUCT_ZERO
    assert len(ANCHOR_REASONS) - 1 == V_DEFICIENT
