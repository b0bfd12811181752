"""The grid of throughput: every cell beside the paper's ratios, kept when stopped, without those that do not fit."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixformer.bench import speed_grid
from fixformer.bench.grid_table import HEADER, grid_notes, grid_table, plot_grid
from fixformer.bench.model_speed_worker import ModelSpeed, ModelSpeedJob
from fixformer.bench.paper_throughput import FRAMES, PAPER, SIZES, paper_ratio
from fixformer.bench.speed_grid import VARIANTS, bench_grid
from fixformer.cli.app import main
from fixformer.cli.print_bench import print_grid
from fixformer.errors import OutOfMemory, UserError

SYSTEMS = {"Orthoformer": "orthoformer", "Ours": "ours", "Softmax": "softmax"}


class Machine:
    """Stands for the processes that measure; `lacks` names attentions that do not fit into its memory."""

    def __init__(self, *lacks: str, stops_at: int | None = None) -> None:
        self.lacks, self.stops_at, self.jobs = lacks, stops_at, list[ModelSpeedJob]()

    def __call__(self, job: ModelSpeedJob) -> ModelSpeed:
        if len(self.jobs) == self.stops_at:
            raise KeyboardInterrupt
        self.jobs.append(job)
        if self.attention(job) in self.lacks:
            raise OutOfMemory("out of memory (asked for 5 GiB)")
        seconds = {"ours": 1.0, "softmax": 2.0, "orthoformer": 8.0}[self.attention(job)] * (1 + 0.1 * len(self.jobs))
        return ModelSpeed((seconds,), (50.0,), 2**20, 2**30)

    @staticmethod
    def attention(job: ModelSpeedJob) -> str:
        return job.settings.get("attention", "ours")

    def measured(self) -> list[tuple[int, str]]:
        return [(job.frames, self.attention(job)) for job in self.jobs]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(machine: Machine, **settings: Any) -> dict[str, Any]:
        monkeypatch.setattr(speed_grid, "measure_model", machine)
        return bench_grid("fixformer_tiny", **{"frames": (16, 32), "sizes": (32,), "rounds": 2, **settings})

    return run


def test_a_clip_that_was_left_half_measured_has_a_line(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "grid.json"
    with pytest.raises(KeyboardInterrupt):
        run(Machine(stops_at=1), out=out)
    result = run(Machine(), out=out, frames=(32,))
    assert {line[0] for line in grid_table(result)} == {"16x32", "32x32"}
    print_grid(result)


def test_memory_that_is_short_once_says_nothing_about_a_cell(run: Any, tmp_path: Path) -> None:
    run(Machine(), out=tmp_path / "grid.json", rounds=1)
    result = run(Machine("softmax"), out=tmp_path / "grid.json", rounds=2)
    softmax = [row for row in result["rows"] if row["variant"] == "softmax"]
    assert all(row["videos_per_second"] and not row["out_of_memory"] for row in softmax)
    assert not any("out of memory" in note for note in grid_notes(result))


def test_the_paper_prints_these_numbers(shared: Path) -> None:
    lines = (shared / "paper.tex").read_text().partition("label {tab:efficiency}")[0].splitlines()[-20:]
    for name, variant in SYSTEMS.items():
        line = next(line for line in lines if line.startswith(name))
        printed = re.findall(r"&\s*(?:\\footnotesize )?(OOM|[\d.]+)", line)
        stored = [PAPER[frames, size, variant] for frames in FRAMES for size in SIZES]
        assert [value if value == "OOM" else float(value) for value in printed] == stored


def test_ratios_of_the_paper() -> None:
    assert paper_ratio(16, 224, "softmax") == 10.25 / 8.23
    assert paper_ratio(64, 448, "softmax") == "OOM"
    assert paper_ratio(16, 32, "softmax") is None


def test_the_three_of_a_clip_follow_each_other_in_every_round(run: Any) -> None:
    machine = Machine()
    result = run(machine)
    assert machine.measured() == [(frames, variant) for frames in (16, 32) for variant in VARIANTS] * 2
    assert {"fixation": "none", "association": "none", "landmarks": 64}.items() <= machine.jobs[2].settings.items()
    assert all(job.memory for job in machine.jobs)
    assert json.dumps(result, allow_nan=False)
    ratios = [ratio for ratio in result["ratios"] if (ratio["frames"], ratio["variant"]) == (16, "softmax")]
    # each pair is of one round: first and second measurement, then seventh and eighth
    assert ratios[0]["times_as_fast"]["highest"] == pytest.approx(2 * 1.2 / 1.1)
    assert ratios[0]["times_as_fast"]["lowest"] == pytest.approx(2 * 1.8 / 1.7)
    assert result["rows"][0]["videos_per_second"]["highest"] == pytest.approx(1 / 1.1)


def test_the_table_has_the_papers_ratios_and_the_figure_is_drawn(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    result = run(Machine("softmax"), frames=(16, 64), sizes=(448,))
    first, second = (dict(zip(HEADER, line, strict=False)) for line in grid_table(result))
    assert (first["clip"], first["softmax"], first["ours / softmax"]) == ("16x448", "out of memory", "")
    assert [line[5] for line in grid_table(result)] == ["1.18", "OOM"]
    assert first["ours"].endswith("%")
    assert second["GB of each"] == "1.00 - 1.00"
    notes = " ".join(grid_notes(result))
    assert "4 of 6 cells measured; rounds of each: 2." in notes
    assert "softmax at 64x448 is out of memory" in notes
    assert "Beside Orthoformer ours is ahead in every round in 2 of 2 clips" in notes
    print_grid(result)
    assert "Orthoformer" in capsys.readouterr().out
    plot_grid(result, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_out_of_memory_is_tried_once(run: Any) -> None:
    machine = Machine("softmax")
    row = run(machine)["rows"][1]
    assert [attention for _, attention in machine.measured()].count("softmax") == 2  # one of each clip
    assert row["out_of_memory"] == "out of memory (asked for 5 GiB)"
    assert row["videos_per_second"] is None
    assert row["memory_limit"] > 0


def test_a_stopped_grid_continues(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "grid.json"
    with pytest.raises(KeyboardInterrupt):
        run(Machine(stops_at=4), out=out)
    assert "the same command goes on" in capsys.readouterr().err
    assert len(json.loads(out.read_text())["measurements"]) == 4
    rest = Machine()
    result = run(rest, out=out)
    assert rest.measured()[:3] == [(32, "softmax"), (32, "orthoformer"), (16, "ours")]
    assert len(rest.jobs) == 8
    assert "4 measurements are kept, at most 8 are left" in capsys.readouterr().err
    assert json.loads(out.read_text())["measurements"] == json.loads(json.dumps(result["measurements"]))
    again = Machine()
    run(again, out=out)
    assert not again.jobs
    assert [path.name for path in out.parent.iterdir()] == ["grid.json"]


def test_other_clips_and_rounds_are_added_to_what_a_file_has(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "grid.json"
    run(Machine("softmax"), out=out, rounds=1)
    machine = Machine()
    result = run(machine, out=out, frames=(16, 64), rounds=2)
    expected = [(64, "ours"), (64, "softmax"), (64, "orthoformer")]
    assert machine.measured() == [*expected, (16, "ours"), (16, "orthoformer"), *expected]
    assert {row["frames"] for row in result["rows"]} == {16, 32, 64}
    assert "rounds of each: 1 to 2." in " ".join(grid_notes(result))


def test_other_measurements_are_neither_mixed_nor_overwritten(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "grid.json"
    run(Machine(), out=out, threads=1)
    before = out.read_bytes()
    with pytest.raises(UserError, match="threads=1, not 2"):
        run(Machine(), out=out, threads=2)
    monkeypatch.setattr(speed_grid, "MEASURED_CODE", ("ops",))
    with pytest.raises(UserError, match="code="):
        run(Machine(), out=out, threads=1)
    assert out.read_bytes() == before


@pytest.mark.parametrize("text", ["[]", "{", '{"rows": []}', '{"measurements": [{"frames": 1}]}'])
def test_another_file_is_refused(run: Any, tmp_path: Path, text: str) -> None:
    out = tmp_path / "grid.json"
    out.write_text(text)
    with pytest.raises(UserError, match=r"grid\.json cannot be continued.*delete it"):
        run(Machine(), out=out)
    assert out.read_text() == text


def test_a_damaged_measurement_is_refused(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "grid.json"
    run(Machine(), out=out)
    whole = json.loads(out.read_text())
    for change in ({"variant": "other"}, {"speed": None}, {"out_of_memory": "both"}):
        out.write_text(json.dumps({**whole, "measurements": [{**whole["measurements"][0], **change}]}))
        with pytest.raises(UserError, match="cannot be continued"):
            run(Machine(), out=out)


@pytest.mark.slow
def test_the_command_measures_in_real_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grid.json"
    words = ["bench", "grid", "fixformer_tiny", "--frames", "2", "--sizes", "32", "--threads", "1"]
    main([*words, "--rounds", "1", "--out", str(out)])
    assert "3 of 3 cells measured; rounds of each: 1." in capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert [row["variant"] for row in rows] == list(VARIANTS)
    for row in rows:
        assert row["videos_per_second"]["lowest"] > 0
        assert row["peak_memory_bytes"] >= row["memory_before_bytes"] > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_real_process_that_lacks_memory_is_a_cell_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB hold the weights and the clip, of 10 MB each, but not all that a forward pass takes."""
    measure = speed_grid.measure_model

    def measure_within(job: ModelSpeedJob) -> ModelSpeed:
        return measure(replace(job, memory=60 << 20 if "softmax" in job.settings.values() else 2 << 30))

    monkeypatch.setattr(speed_grid, "measure_model", measure_within)
    ours, softmax, orthoformer = bench_grid("fixformer_tiny", (16,), (224,), threads=1, rounds=1)["rows"]
    assert ours["rounds"] == orthoformer["rounds"] == 1
    assert softmax["rounds"] == 0
    assert "out of memory" in softmax["out_of_memory"]
