"""The groups of operations of a pass add up to it, and their multiply-accumulates are those of `cost`."""

from typing import Any

import pytest

from fixformer.bench import pass_parts
from fixformer.bench.pass_parts import Operation, PartsJob, bench_parts, measure
from fixformer.cli.print_bench import print_parts
from fixformer.errors import UserError
from fixformer.models.cost import cost


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_parts, "SECONDS_ALONE", 0.001)


@pytest.mark.parametrize("training", [False, True])
def test_the_groups_add_up(training: bool) -> None:
    result = measure(PartsJob("fixformer_tiny", 4, 64, 1, training))
    groups = {group["group"]: group for group in result["groups"]}
    assert sum(group["seconds"] for group in groups.values()) == pytest.approx(result["seconds_profiled"])
    assert 0 < result["floor_seconds"] < result["seconds_profiled"]
    assert all(group["floor_seconds"] <= group["seconds"] for group in groups.values() if group["group"] != "between")
    gmacs = groups["products"]["gmacs"] + groups["attention"]["gmacs"]
    # without the patches, which are a convolution, and without what `cost` counts of LayerNorm and filters
    counted = cost("fixformer_tiny", 4, 64).executed_macs / 1e9
    low, high = (2.6, 3.1) if training else (0.8, 1.0)
    assert low * counted < gmacs < high * counted


def test_what_operations_move_and_compute() -> None:
    added = Operation("addmm", [[7], [5, 3], [3, 7], [], []], 1.0)
    assert added.product == (1, 5, 3, 7)
    assert added.macs == 5 * 3 * 7
    assert added.bytes_moved == 4 * (5 * 3 + 3 * 7 + 5 * 7)
    assert Operation("bmm", [[2, 5, 3], [2, 3, 7]], 1.0).macs == 2 * 5 * 3 * 7
    assert Operation("copy", [[4, 4], [4, 4], []], 1.0).bytes_moved == 4 * 2 * 16  # what is written over is not read
    assert Operation("mul", [[4, 4], [4, 1]], 1.0).bytes_moved == 4 * (16 + 4 + 16)
    assert Operation("unheard_of", [[4]], 1.0).group == "other"


def test_both_passes_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(module: str, job: PartsJob, what: str) -> dict[str, Any]:
        return measure(job)

    monkeypatch.setattr(pass_parts, "measure_apart", answer)
    result = bench_parts("fixformer_tiny", frames=2, size=32, threads=1)
    assert [one["training"] for one in result["passes"]] == [False, True]
    print_parts(result)
    assert "LayerNorm" in capsys.readouterr().out


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UserError, match="frames=0"):
        bench_parts(frames=0)
