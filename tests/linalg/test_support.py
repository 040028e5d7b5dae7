import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scaled_idempotence.linalg import support as s
from scaled_idempotence.linalg.principal import core_closure
from tests.operators import orthogonal


@st.composite
def cores(draw, max_r=64):
    """A core and cosines; at times of low rank, or with repeated, unit or zero cosines."""
    r = draw(st.integers(1, max_r))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    K = torch.from_numpy(rng.normal(size=(r, r))) + draw(st.sampled_from((0.0, 3.0))) * torch.eye(r)
    if draw(st.booleans()):
        K = K @ torch.diag(torch.logspace(0, -draw(st.integers(0, 8)), r, dtype=torch.float64))
    kind = draw(st.sampled_from(("random", "equal", "blocks", "extreme")))
    c = {
        "random": rng.random(r) * 0.98 + 0.01,
        "equal": np.full(r, 0.4),
        "blocks": rng.choice([0.9, 0.5, 0.1], r),
        "extreme": np.r_[1.0, rng.choice([1.0, 0.5, 0.0], r - 1)],
    }[kind]
    return K, torch.from_numpy(np.sort(c)[::-1].copy())


@given(cores())
def test_the_decomposition_puts_closure_together_again(pair):
    K, c = pair
    parts = s.response_decomposition(K, c)
    assert parts.closure.item() == pytest.approx(core_closure(K, c).item(), abs=1e-10)
    assert parts.latent.item() == pytest.approx(s.latent_closure(K).sqrt().item(), abs=1e-10)


@given(cores())
def test_the_parts_are_those_of_the_definition(pair):
    """Against (14) written out with numpy on flat vectors."""
    K, c = pair[0].numpy(), pair[1].numpy()
    mean = c.mean()
    X, F = (K @ K).ravel(), (K @ np.diag(c - mean) @ K).ravel()
    x = X / np.linalg.norm(X)
    F = F / (mean * np.linalg.norm(X))
    plane = np.linalg.qr(np.stack([x, K.ravel()], axis=1))[0]
    out = F - plane @ (plane.T @ F)
    parts = s.response_decomposition(*pair)
    size = 1 + np.linalg.norm(F)
    assert parts.radial.item() == pytest.approx(F @ x, abs=1e-9 * size)
    if 1 - parts.latent.item() > 1e-6:
        assert parts.leakage.item() == pytest.approx(np.linalg.norm(out), abs=1e-7 * size)
        in_plane = np.sqrt(max(0.0, F @ F - (F @ x) ** 2 - out @ out))
        assert abs(parts.rotation.item()) == pytest.approx(in_plane, abs=1e-6 * size)


@given(cores())
def test_equal_angles_give_the_latent_core(pair):
    K, c = pair
    latent = s.latent_closure(K).item()
    assert core_closure(K, s.isoclinic(c)).item() == pytest.approx(latent, abs=1e-10)
    parts = s.response_decomposition(K, torch.full_like(c, 0.3))
    assert (parts.radial.abs(), parts.rotation.abs(), parts.leakage) < (1e-12, 1e-12, 1e-12)
    assert s.isotropy(s.isoclinic(c)).item() == pytest.approx(1)
    assert s.overlap(s.isoclinic(c)).item() == pytest.approx(s.overlap(c).item())


@given(cores(max_r=12), st.integers(0, 10**6))
def test_rotations_inside_equal_angles_change_nothing_reported(pair, seed):
    K, c = pair
    R = torch.zeros_like(K)
    for value in c.unique():
        block = (c == value).nonzero().flatten()
        R[block[:, None], block] = orthogonal(len(block), seed)
    turned = R.mT @ K @ R
    assert core_closure(turned, c).item() == pytest.approx(core_closure(K, c).item(), abs=1e-10)
    assert s.latent_closure(turned).item() == pytest.approx(s.latent_closure(K).item(), abs=1e-10)
    assert s.latent_scale(turned).item() == pytest.approx(
        s.latent_scale(K).item(), abs=1e-10 * float(K.norm())
    )
    for one, other in zip(
        s.response_decomposition(K, c), s.response_decomposition(turned, c), strict=True
    ):
        assert other.item() == pytest.approx(one.item(), abs=1e-8 * (1 + abs(one.item())))


@pytest.mark.parametrize("scale", [2.5, -2.5])
def test_a_scalar_core_has_no_plane_to_rotate_in(scale):
    """s = 1: K^2 and K are parallel, and what uneven angles do is radial and leakage."""
    c = torch.linspace(0.9, 0.2, 6, dtype=torch.float64)
    parts = s.response_decomposition(scale * torch.eye(6, dtype=torch.float64), c)
    assert parts.latent.item() == pytest.approx(1)
    assert parts.rotation.item() == 0
    assert parts.closure.item() == pytest.approx(s.isotropy(c).item())
    assert s.latent_scale(scale * torch.eye(6)).item() == pytest.approx(scale)


def test_overlap_and_isotropy_of_known_angles():
    c = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert s.overlap(c).item() == 0.5
    assert s.isotropy(c).item() == 0.5
    assert s.isotropy(torch.zeros(3)).isnan()


def test_nothing_to_decompose_is_nan():
    nilpotent = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    parts = s.response_decomposition(nilpotent, torch.tensor([0.5, 0.4]))
    assert all(part.isnan() for part in parts)
