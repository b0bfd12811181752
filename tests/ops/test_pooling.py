import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from op_checks import assert_close

from fixformer.ops.pooling import grid_means, segment_means


@settings(deadline=None, max_examples=60)
@given(tokens=st.integers(1, 60), segments=st.integers(1, 70))
def test_segments_cover_the_sequence_with_the_shorter_ones_first(tokens, segments):
    eye = torch.eye(tokens, dtype=torch.float64)[None, None]
    weights = segment_means(eye, segments)[0, 0]
    lengths = (weights > 0).sum(1)
    assert len(weights) == min(segments, tokens)
    assert lengths.sum() == tokens
    assert lengths.max() - lengths.min() <= 1
    assert torch.equal(lengths, lengths.sort()[0])
    owner = weights.argmax(0)
    assert torch.equal(owner, owner.sort()[0])
    assert_close(weights.sum(1), torch.ones(len(weights)), 1e-12)


def test_grid_means_of_a_divisible_grid_are_block_means():
    x = torch.randn(2, 3, 4 * 6 * 2, 5, generator=torch.Generator().manual_seed(0))
    blocks = x.view(2, 3, 2, 2, 3, 2, 2, 1, 5).mean((3, 5, 7)).flatten(2, 4)
    assert_close(grid_means(x, (4, 6, 2), (2, 3, 2)), blocks, 1e-6)


@settings(deadline=None, max_examples=25)
@given(grid=st.tuples(st.integers(1, 7), st.integers(1, 7)), size=st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_grid_means_are_adaptive_pooling_of_each_channel(grid, size):
    x = torch.randn(2, 2, grid[0] * grid[1], 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = F.adaptive_avg_pool2d(x.permute(0, 1, 3, 2).reshape(2, 6, *grid), size).view(2, 2, 3, -1).mT
    assert_close(grid_means(x, grid, size), expected, 1e-12)
