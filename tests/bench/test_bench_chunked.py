"""The benchmark of inference in chunks runs every case both ways. Speed itself is never asserted."""

import json
from pathlib import Path

import pytest

from fixformer.bench.chunked_inference import CASES, _parse, bench_chunked, plot_chunked
from fixformer.bench.model_speed_worker import ModelSpeedJob, measure
from fixformer.cli.print_bench import print_chunked
from fixformer.errors import UserError
from fixformer.models import fused


@pytest.mark.slow
def test_plain_and_chunked_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench_chunked(["fixformer_tiny:2x32", "fixformer_tiny:1x48"], threads=1, rounds=1)
    assert json.loads(json.dumps(result)) == result
    assert [(row["model"], row["frames"], row["size"]) for row in result["rows"]] == [
        ("fixformer_tiny", 2, 32),
        ("fixformer_tiny", 1, 48),
    ]
    for row in result["rows"]:
        assert row["time_ratio"] == row["plain"]["seconds_median"] / row["chunked"]["seconds_median"]
        assert row["memory_ratio"] > 0
        assert row["plain"]["repeats"] == row["chunked"]["repeats"] == 3
    print_chunked(result)
    assert "plain / chunked" in capsys.readouterr().out
    plot_chunked(result, tmp_path / "chunked.png")
    assert (tmp_path / "chunked.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("chunked", [False, True])
def test_chunks_are_forced_at_any_size(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SMALLEST_BYTES", fused.SMALLEST_BYTES)  # the worker changes it
    calls = []
    monkeypatch.setattr("fixformer.models.video_transformer.run_in_place", lambda blocks, x: calls.append(x.shape) or x)
    measure(ModelSpeedJob("fixformer_tiny", 1, 32, {"depth": 1}, threads=1, repeats=1, chunked=chunked))
    assert bool(calls) == chunked


def test_cases_are_read_or_refused() -> None:
    assert [_parse(case) for case in CASES][-1] == ("fixformer_base", 96, 448)
    with pytest.raises(UserError, match="16by224"):
        bench_chunked(["fixformer_tiny:16by224"])
    with pytest.raises(UserError, match="rounds=0"):
        bench_chunked(rounds=0)
