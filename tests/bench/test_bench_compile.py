"""The benchmark of torch.compile pairs each pass with its compiled form. Compiling itself is left to the benchmark."""

from pathlib import Path
from typing import Any

import pytest

from fixformer.bench import compiled
from fixformer.bench.compiled import Compiled, CompileJob, bench_compile, measure
from fixformer.cli.print_bench import print_compiled


def test_the_first_pass_of_a_compiled_model_counts_as_compiling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(module: str, job: CompileJob, what: str, environment: dict[str, str]) -> dict[str, Any]:
        assert not list(Path(environment["TORCHINDUCTOR_CACHE_DIR"]).iterdir())
        return vars(Compiled(9.0, [2.0, 1.0] if job.compile else [4.0], 5))

    monkeypatch.setattr(compiled, "measure_apart", answer)
    rows = bench_compile("fixformer_tiny", clips=["2x32"])["rows"]
    assert [(row["training"], row["compiled"], row["compile_seconds"], row["seconds"]) for row in rows] == [
        *((False, False, 0, 4), (False, True, 8, 1), (True, False, 0, 4), (True, True, 8, 1))
    ]
    print_compiled(bench_compile("fixformer_tiny", clips=["2x32"]))
    assert "4.00" in capsys.readouterr().out


@pytest.mark.parametrize("training", [False, True])
def test_passes_are_measured_after_the_first(training: bool) -> None:
    job = CompileJob("fixformer_tiny", 2, 32, 1, threads=1, training=training, compile=False, repeats=2)
    assert len(measure(job).seconds) == 2
