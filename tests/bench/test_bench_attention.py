"""The benchmark of attentions on the smallest sizes: what it measures, how it finds a crossover, what it draws."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from fixformer.bench import attention_speed as bench
from fixformer.bench.attention_speed_worker import AttentionSpeedJob, measure
from fixformer.bench.process import measure_apart
from fixformer.cli.print_bench import print_attention_speed
from fixformer.config.model import AttentionName
from fixformer.errors import UnknownName, UserError
from fixformer.runtime.files import write_json


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Two kinds in real processes."""
    return bench.bench_attention(["ours"], sides=(3, 5), rounds=1, seconds=0.0)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", bench.KINDS)
def test_every_kind_runs(kind: str, backward: bool) -> None:
    job = AttentionSpeedJob(bench.KINDS[kind], [2, 4], heads=2, head_dim=8, backward=backward, seconds=1e-9)
    rows = list(measure(job))
    assert [row.side for row in rows] == [2, 4]
    assert all(row.memory >= 0 and len(row.seconds) == 1 and row.seconds[0] > 0 for row in rows)


def test_all_attentions_are_compared() -> None:
    assert {settings.get("attention", "linear") for settings in bench.KINDS.values()} == set(get_args(AttentionName))
    assert {"attention": "linear", "kernel": "elu1", **bench.PLAIN} in bench.KINDS.values()  # the Linear Transformer


@pytest.mark.slow
def test_a_result_says_what_was_measured_and_where(result: dict[str, Any], tmp_path: Path) -> None:
    assert {(row["attention"], row["pass"], row["tokens"]) for row in result["rows"]} == {
        (kind, name, tokens)
        for kind in ("softmax", "ours")
        for name in ("forward", "forward+backward")
        for tokens in (9, 25)
    }
    assert result["machine"].keys() >= {"cpu", "threads", "load_average", "load_average_after", "commit"}
    assert (result["heads"], result["head_dim"], result["batch"], result["dtype"]) == (8, 64, 1, "float32")
    assert len(result["sgemm_gmacs_per_second_of_each_turn"]) == 4
    write_json(tmp_path / "attention.json", result)
    assert json.loads((tmp_path / "attention.json").read_text()) == result


@pytest.mark.slow
def test_it_is_printed_and_drawn(result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    print_attention_speed(result)
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ours", "softmax", "forward+backward", "load average"))
    bench.plot_attention_bench(result, tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def rows_of(times: dict[str, list[float]], tokens: tuple[int, ...] = (100, 1000, 10000)) -> list[dict[str, Any]]:
    return [
        {"attention": kind, "pass": name, "tokens": n, "seconds": second}
        for kind, seconds in times.items()
        for name in bench.PASSES.values()
        for n, second in zip(tokens, seconds, strict=True)
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([2, 20, 200], 200.0),  # linear against quadratic, equal at N = 200
        ([0.5, 5, 50], 100.0),  # faster throughout
        ([200, 2000, 20000], None),  # slower throughout
        ([0.5, 110, 50], 1041.5),  # faster, slower, faster: the last time counts
    ],
)
def test_where_a_kind_overtakes_softmax(seconds: list[float], expected: float | None) -> None:
    found = bench.crossovers(rows_of({"softmax": [1, 100, 10000], "linear": seconds}))["linear"]["forward"]
    assert found == (expected if expected is None else pytest.approx(expected, rel=0.01))


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UnknownName, match="performer"):
        bench.bench_attention(["perfomer"])
    with pytest.raises(UserError, match="rounds=0"):
        bench.bench_attention(["linear"], rounds=0)


@pytest.mark.slow
def test_a_failing_worker_is_one_sentence() -> None:
    job = AttentionSpeedJob({"attention": "sofmax"}, [2])
    with pytest.raises(UserError, match=r"linear attention .*sofmax"):
        measure_apart("fixformer.bench.attention_speed_worker", job, "linear attention")
