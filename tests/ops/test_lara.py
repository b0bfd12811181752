from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from op_checks import (
    GOLDEN_TOLERANCE,
    assert_captured,
    assert_close,
    assert_half_precision_is_close,
    assert_twins_agree,
    load_golden,
    random_qkv,
)
from torch import Tensor

from fixformer.models.attention.kinds import LaraAttention
from fixformer.ops.lara import (
    LandmarkWeights,
    Samples,
    balance_weighting,
    biased_weighting,
    lara_attention,
    lara_attention_reference,
    lara_trajectories,
    lara_trajectories_reference,
    mix_landmarks,
    mix_landmarks_by_value,
    optimal_weighting,
    project_landmarks,
)
from fixformer.ops.pooling import grid_means, segment_means

WEIGHTINGS = {"mis-opt": optimal_weighting, "mis-bh": balance_weighting, "mis-biased": biased_weighting}
GRID_OPTIONS = [
    "pool-mixed.light.mis-opt",
    "pool-mixed.light.mis-bh",
    "pool-mixed.light.mis-biased",
    "pool.light.mis-opt",
    "pool-vmixed.light.mis-opt",
    "no-param-pool-mixed.light.mis-opt",
    "pool-mixed.dense.mis-opt",
]


def landmark_weights(golden: dict[str, Tensor], prefix: str, linear: int) -> LandmarkWeights:
    names = [f"{prefix}.{layer}.{part}" for layer in (linear, linear + 1) for part in ("weight", "bias")]
    return LandmarkWeights(*(golden[f"weights.{name}"] for name in names))


def project_qkv(golden: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    qkv = F.linear(x, golden["weights.qkv.weight"], golden["weights.qkv.bias"])
    q, k, v = qkv.unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    return q, k, v


def project_out(golden: dict[str, Tensor], y_BHNE: Tensor) -> Tensor:
    y = y_BHNE.transpose(1, 2).flatten(2)
    return F.linear(y, golden["weights.proj.weight"], golden["weights.proj.bias"])


def grid_landmarks(golden: dict[str, Tensor], options: str, qkv: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    proposal, pool_type, _ = options.split(".")
    q_bar, k_bar, v_bar = (grid_means(x, (6, 6), (2, 2)) for x in qkv)
    if not proposal.startswith("no-param"):
        prefix = "dense." if pool_type == "dense" else ""
        q_bar = project_landmarks(q_bar, landmark_weights(golden, f"{prefix}q_bar_gen", 2))
        k_bar = project_landmarks(k_bar, landmark_weights(golden, f"{prefix}k_bar_gen", 2))
    if proposal.endswith("-vmixed"):
        return q_bar, mix_landmarks_by_value(k_bar, v_bar)
    return q_bar, mix_landmarks(k_bar) if proposal.endswith("-mixed") else k_bar


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("options", GRID_OPTIONS)
def test_golden_grid(golden_dir: Path, options: str, dtype: torch.dtype):
    golden = load_golden(golden_dir, "op_lara", dtype)
    qkv = project_qkv(golden, golden["x"].flatten(1, 2))
    weighting = WEIGHTINGS[options.rsplit(".", 1)[1]]
    y = lara_attention(*qkv, *grid_landmarks(golden, options, qkv), weighting=weighting)
    assert_close(project_out(golden, y), golden[f"out.{options}"].flatten(1, 2), GOLDEN_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_golden_sequence(golden_dir: Path, dtype: torch.dtype):
    golden = load_golden(golden_dir, "op_lara", dtype)
    q, k, v = project_qkv(golden, golden["x1d"])
    q_bar = segment_means(project_landmarks(q, landmark_weights(golden, "q_bar_gen", 0)), 4)
    k_bar = segment_means(project_landmarks(k, landmark_weights(golden, "k_bar_gen", 0)), 4)
    y = lara_attention(q, k, v, q_bar, k_bar)
    assert_close(project_out(golden, y), golden["out.adaptive-1d.light.mis-opt"], GOLDEN_TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("x", "grid", "linear", "out"),
    [
        ("x1d", None, 0, "adaptive-1d.light.mis-opt"),
        ("x", (6, 6), 2, "pool-mixed.light.mis-opt"),
    ],
)
def test_the_module_is_the_released_one_on_lines_and_planes(golden_dir: Path, x, grid, linear, out):
    golden = load_golden(golden_dir, "op_lara")
    attend = LaraAttention(width=8, landmarks=4).double().eval()
    for landmarks, prefix in ((attend.query_landmarks, "q_bar_gen"), (attend.key_landmarks, "k_bar_gen")):
        parameters = (landmarks.fc.weight, landmarks.fc.bias, landmarks.norm.weight, landmarks.norm.bias)
        for parameter, weight in zip(parameters, landmark_weights(golden, prefix, linear), strict=True):
            parameter.data = weight
    q, k, v = project_qkv(golden, golden[x].flatten(1, -2))
    y = attend(q, k, v, grid or (q.shape[2],))
    expected = golden[f"out.{out}"].flatten(1, -2)
    assert_close(project_out(golden, y), expected, GOLDEN_TOLERANCE[torch.float64])


def landmarks_and_noise(batch: int, heads: int, proposals: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    q_bar, k_bar, noise = random_qkv(batch, heads, proposals, width, seed=7)
    return 0.5 * q_bar, 0.5 * k_bar, noise


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 3), queries=st.integers(1, 40), keys=st.integers(1, 40),
    width=st.integers(1, 9), proposals=st.integers(1, 12), weighting=st.sampled_from(list(WEIGHTINGS.values())),
    coefficient=st.sampled_from([1.0, 2.0]),
)  # fmt: skip
def test_twins_agree(batch, heads, queries, keys, width, proposals, weighting, coefficient):
    if weighting is optimal_weighting:
        weighting = partial(optimal_weighting, coefficient=coefficient)
    inputs = (
        *random_qkv(batch, heads, queries, width, keys=keys),
        *landmarks_and_noise(batch, heads, proposals, width),
    )
    fast, naive = partial(lara_attention, weighting=weighting), partial(lara_attention_reference, weighting=weighting)
    assert_twins_agree(fast, naive, inputs, tolerance=1e-9)


@settings(deadline=None, max_examples=20)
@given(
    frames=st.integers(1, 4), patches=st.integers(1, 7), width=st.integers(1, 9), proposals=st.integers(1, 9),
    weighting=st.sampled_from(list(WEIGHTINGS.values())),
)  # fmt: skip
def test_twins_agree_per_frame(frames, patches, width, proposals, weighting):
    inputs = (*random_qkv(2, 2, frames * patches, width), *landmarks_and_noise(2, 2, proposals, width))

    def trajectories(attend, q, k, v, *landmarks):
        return attend(q, k, v, frames, *landmarks, weighting)

    fast, naive = partial(trajectories, lara_trajectories), partial(trajectories, lara_trajectories_reference)
    assert_twins_agree(fast, naive, inputs, tolerance=1e-9)


@pytest.mark.parametrize("weighting", WEIGHTINGS.values())
def test_float32_and_half_precision(weighting):
    inputs = (*random_qkv(2, 2, 37, 16), *landmarks_and_noise(2, 2, 4, 16)[:2])
    attend = partial(lara_attention, weighting=weighting)
    out = attend(*(x.float() for x in inputs))
    assert out.dtype == torch.float32
    assert_close(out, attend(*inputs), 1e-5)
    assert_half_precision_is_close(attend, inputs, 2e-2)


@pytest.mark.parametrize("weighting", WEIGHTINGS.values())
def test_convex_linear_and_invariant_to_the_order_of_keys(weighting):
    q, k, v = random_qkv(2, 3, 37, 16)
    landmarks = landmarks_and_noise(2, 3, 4, 16)
    attend = partial(lara_attention, weighting=weighting)
    out = attend(q, k, v, *landmarks)
    constant = v[:, :, :1].expand_as(v)
    assert_close(attend(q, k, constant, *landmarks), constant, 1e-12)
    assert (out >= v.amin(2, keepdim=True) - 1e-12).all()
    assert (out <= v.amax(2, keepdim=True) + 1e-12).all()
    other = v.roll(5, dims=2)
    separate = 2.5 * out + attend(q, k, other, *landmarks)
    assert_close(attend(q, k, 2.5 * v + other, *landmarks), separate, 1e-12)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    assert_close(attend(q, k[:, :, order], v[:, :, order], *landmarks), out, 1e-12)


def test_order_of_keys_matters_to_pooled_landmarks():
    q, k, v = random_qkv(2, 3, 36, 16)

    def attend(q, k, v):
        return lara_attention(q, k, v, grid_means(q, (6, 6), (2, 2)), grid_means(k, (6, 6), (2, 2)))

    order = torch.randperm(36, generator=torch.Generator().manual_seed(0))
    assert (attend(q, k[:, :, order], v[:, :, order]) - attend(q, k, v)).abs().max() > 1e-4


def test_deterministic_without_noise_only():
    q, k, v = random_qkv(1, 2, 20, 8)
    q_bar, k_bar, noise = landmarks_and_noise(1, 2, 4, 8)
    out = lara_attention(q, k, v, q_bar, k_bar)
    assert torch.equal(lara_attention(q, k, v, q_bar, k_bar), out)
    assert (lara_attention(q, k, v, q_bar, k_bar, noise) - out).abs().max() > 1e-3


@pytest.mark.parametrize("weighting", WEIGHTINGS.values())
def test_one_proposal_gives_the_same_vector_to_all_queries(weighting):
    q, k, v = random_qkv(2, 3, 37, 16)
    out = lara_attention(q, k, v, *landmarks_and_noise(2, 3, 1, 16), weighting=weighting)
    assert_close(out, out[:, :, :1].expand_as(out), 1e-12)


def test_large_inputs_stay_finite():
    inputs = [30 * x.float() for x in (*random_qkv(1, 2, 37, 16), *landmarks_and_noise(1, 2, 4, 16)[:2])]
    for weighting in WEIGHTINGS.values():
        assert lara_attention(*inputs, weighting=weighting).isfinite().all()


def test_many_samples_come_closer_to_softmax():
    """Proposals around zero, w drawn from N(0, 1/s): plain Monte Carlo, whose limit is the exact softmax."""
    q, k, v = (x / 2 for x in random_qkv(1, 4, 16, 4))
    exact = F.scaled_dot_product_attention(q, k, v)
    errors = []
    for proposals in (4, 400):
        zeros = torch.zeros(1, 4, proposals, 4, dtype=torch.float64)
        noise = torch.randn(zeros.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4**0.25
        out = lara_attention(q, k, v, zeros, zeros, noise, weighting=balance_weighting)
        errors.append((out - exact).abs().mean())
    assert errors[1] < errors[0] / 5


def test_weightings_follow_their_formulas():
    q, _, _ = random_qkv(1, 1, 5, 4)
    q_bar, k_bar, noise = landmarks_and_noise(1, 1, 3, 4)
    samples = Samples(q_bar, q_bar + k_bar, q_bar + k_bar + noise)
    s, mean, w = 4**-0.5, samples.mean_BHCE[0, 0], samples.sample_BHCE[0, 0]

    def xi(x: Tensor, w: Tensor) -> Tensor:
        return torch.exp(s * (w @ x - x @ x / 2))

    resemblance = torch.stack(
        [torch.stack([torch.exp(s * q_bar[0, 0, c] @ q[0, 0, n]) for n in range(5)]) for c in range(3)]
    )
    t = resemblance / resemblance.sum(1, keepdim=True)
    results = {
        "mis-opt": optimal_weighting(q, samples, coefficient=2.0),
        "mis-bh": balance_weighting(q, samples),
        "mis-biased": biased_weighting(q, samples),
    }
    for c in range(3):
        own, balance = xi(mean[c], w[c]), sum(xi(mean[other], w[c]) for other in range(3))
        for n in range(5):
            alpha = (own / balance + 2 * (t[c, n] - t[:, n].mean())).clamp(min=1e-8)
            query = q[0, 0, n]
            expected = {
                "mis-opt": alpha * torch.exp(s * w[c] @ query) / own,
                "mis-bh": torch.exp(s * w[c] @ query) / balance,
                "mis-biased": torch.exp(s * mean[c] @ query) * torch.exp(s * w[c] @ query) / balance,
            }
            for name, weights in results.items():
                alpha_cn = 1 if weights.alpha_BHNC is None else weights.alpha_BHNC[0, 0, n, c]
                exponent = s * weights.direction_BHCE[0, 0, c] @ query - weights.log_p_BH1C[0, 0, 0, c]
                assert_close(alpha_cn * torch.exp(exponent), expected[name], 1e-12)


def test_captured():
    weights = LandmarkWeights(*(torch.randn(*shape, dtype=torch.float64) for shape in ((16, 16), (16,), (16,), (16,))))

    def attend(q, k, v, noise):
        q_bar, k_bar, v_bar = (grid_means(x, (4, 5), (2, 2)) for x in (q, k, v))
        k_bar = mix_landmarks_by_value(project_landmarks(k_bar, weights), v_bar)
        return lara_attention(q, k, v, project_landmarks(q_bar, weights), k_bar, noise)

    assert_captured(attend, (*random_qkv(1, 2, 20, 8), landmarks_and_noise(1, 2, 4, 8)[2]))
