"""Where decoding must begin, against the definition by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixformer.data.video.frame_table import FrameTable, PacketRow, frames_at


@st.composite
def streams(draw: st.DrawFn) -> list[PacketRow]:
    """Packets in decoding order with distinct times in any order, some hidden, some key packets."""
    count = draw(st.integers(1, 40))
    times = draw(st.lists(st.integers(-1000, 1000), min_size=count, max_size=count, unique=True))
    keys = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    shown = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return [PacketRow(t, None, k, s) for t, k, s in zip(times, keys, shown, strict=True)]


@settings(deadline=None)
@given(streams())
def test_table_is_the_definition(rows: list[PacketRow]) -> None:
    table = FrameTable(rows)
    shown = sorted((row.pts, number) for number, row in enumerate(rows) if row.shown)
    assert len(table) == len(shown)
    assert table.unambiguous
    for frame, (pts, packet) in enumerate(shown):
        assert table.find(pts) == frame
        assert table.frame_P[packet] == frame
        usable = [k for k in range(packet + 1) if rows[k].key and rows[k].pts <= pts]
        assert table.anchor(frame) == max(usable, default=0)
    assert all(table.frame_P[i] == -1 for i, row in enumerate(rows) if not row.shown)


def test_leading_pictures_need_an_older_key_packet() -> None:
    """An open group of pictures: two frames that follow a key packet in the file are shown before it."""
    rows = [PacketRow(t, None, t in (0, 6), True) for t in (0, 3, 1, 2, 6, 4, 5, 8, 7)]
    table = FrameTable(rows)
    assert [table.anchor(i) for i in range(9)] == [0, 0, 0, 0, 0, 0, 4, 4, 4]


def test_equal_times_are_ambiguous() -> None:
    assert not FrameTable([PacketRow(1, 0, True, True), PacketRow(1, 1, False, True)]).unambiguous
    assert FrameTable([PacketRow(1, 0, True, True)]).find(None) is None


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=20), st.lists(st.floats(0, 30), min_size=1, max_size=10))
def test_frames_at_is_the_last_frame_that_began(gaps: list[float], moments: list[float]) -> None:
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    for moment, index in zip(moments, frames_at(times, moments), strict=True):
        assert times[index] <= moment + 1e-5
        assert index == len(times) - 1 or times[index + 1] > moment


@pytest.mark.parametrize("fps", [12, 23.976, 29.97, 30, 59.94])
def test_a_time_computed_from_a_number_finds_its_frame(fps: float) -> None:
    times = np.arange(1000) / fps
    assert frames_at(times, [i / fps for i in range(1000)]) == list(range(1000))
    assert frames_at(np.round(times, 6), list(times)) == list(range(1000))
