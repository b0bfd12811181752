"""Fingerprints: the same after re-encoding, different for other videos and for the same video backwards."""

import numpy as np
import pytest

from fixformer.data.audit import fingerprint as hashing
from fixformer.data.audit.fingerprint import TIMES, fingerprint, sampled_frames, similar_pairs
from fixformer.data.video import open_video
from fixformer.data.video.content import digest_file, digest_of
from videos import encode, moving_square, textured


def print_of(clip_THWC: np.ndarray) -> str:
    return fingerprint(clip_THWC[sampled_frames(len(clip_THWC))])


def found(first: np.ndarray, second: np.ndarray) -> bool:
    return bool(list(similar_pairs([print_of(first)], [print_of(second)])))


def test_survives_reencoding_resizing_and_brightness() -> None:
    clip = textured(1)
    with open_video(encode(clip, options={"crf": "33"})) as video:
        assert found(clip, video.get_frames(range(len(video))))
    with open_video(encode(clip), short_side=48) as video:
        assert found(clip, video.get_frames(range(len(video))))
    assert found(clip, np.clip(clip.astype(int) + 20, 0, 255).astype(np.uint8))


def test_other_videos_are_other_videos() -> None:
    clip = textured(1)
    assert not found(clip, textured(2))
    assert not found(clip, clip[::-1])
    other_motion = clip.copy()
    other_motion[:] = clip[0]
    other_motion[5:, 50:80, 20:50] = 0
    assert not found(clip, other_motion)


def test_pairs_name_both_places() -> None:
    clips = [textured(seed) for seed in range(5)]
    prints = [print_of(clip) for clip in clips]
    pairs = list(similar_pairs([prints[3], prints[0]], prints))
    assert [(i, j) for i, j, _ in pairs] == [(0, 3), (1, 0)]
    assert all(likeness > 0.999 for *_, likeness in pairs)


def test_pairs_are_compared_in_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    prints = [print_of(textured(seed)) for seed in range(7)]
    largest = 0

    def spy(bytes_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal largest
        largest = max(largest, len(bytes_ND))
        return units(bytes_ND)

    units = hashing._units
    monkeypatch.setattr(hashing, "_units", spy)
    monkeypatch.setattr(hashing, "_CHUNK", 3)
    assert sorted((i, j) for i, j, _ in similar_pairs(prints[::-1], prints)) == [(i, 6 - i) for i in range(7)]
    assert largest == 3


@pytest.mark.parametrize("frames", [1, 2, 7, 8, 9, 300])
def test_sampled_frames_are_in_range_and_ordered(frames: int) -> None:
    times = sampled_frames(frames)
    assert len(times) == TIMES
    assert times == sorted(times)
    assert 0 <= times[0]
    assert times[-1] < frames


@pytest.mark.parametrize("size", [(4, 4), (9, 50), (48, 64), (121, 81)])
def test_any_size(size: tuple[int, int]) -> None:
    assert len(fingerprint(moving_square(TIMES, *size))) == len(fingerprint(moving_square(TIMES)))


def test_digests(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "file"
    path.write_bytes(b"content")
    assert digest_file(path) == digest_of(b"content") != digest_of(b"other")
