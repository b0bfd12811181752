"""The Ray engine, on two nodes and in a process of its own: the rows of the local engine, though an actor is killed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

import fixformer
from fixformer.data.video import DecodeError
from fixformer.errors import UserError
from fixformer.labelling.ray_engine import actors_with_room, user_error

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_command_of_the_page_on_two_nodes(
    checkpoint: str, videos: list[str], manifest: Callable[..., str], tmp_path: Path
) -> None:
    [command] = re.findall(r"^\$ (fixformer label .*--engine ray.*)$", (ROOT / "docs" / "deploy.md").read_text(), re.M)
    source, out = str(tmp_path / "manifest.parquet"), tmp_path / "ray"
    table = pyarrow.csv.read_csv(manifest([*(videos * 3)[:95], "nowhere.mp4"], shop=map(str, range(96))))
    pyarrow.parquet.write_table(table, source)
    script = str(Path(__file__).parent / "ray_run.py")
    words = [sys.executable, script, command, source, checkpoint, str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "handlers kept True" in done.stdout
    assert "killed" in done.stdout
    options = {"views": "1x1", "workers": 1, "threads": 1, "device": "cpu"}
    local = list(fixformer.label(source, checkpoint, tmp_path / "local", **options).rows())  # type: ignore[arg-type]
    found = sorted(pyarrow.parquet.read_table(out / "rows").to_pylist(), key=lambda row: row["row"])
    assert len(found) == len(local) == 96
    for row, expected in zip(found, local, strict=True):
        for name in ("probability", "top_probabilities"):
            assert row.pop(name) == pytest.approx(expected.pop(name), abs=1e-6)
        assert row == expected


def test_an_actor_without_room_is_one_sentence() -> None:
    """Ray itself would wait for a machine that never comes."""
    assert actors_with_room({"CPU": 8.0, "GPU": 2.0}, 2, 0) == 4
    assert actors_with_room({"CPU": 8.0, "GPU": 2.0}, 2, 0.5) == 4
    assert actors_with_room({"CPU": 8.0, "GPU": 2.0}, 1, 1) == 2
    for resources, cpus, gpus in (({"CPU": 8.0}, 1, 1), ({"CPU": 2.0}, 3, 0)):
        with pytest.raises(UserError, match="an actor needs"):
            actors_with_room(resources, cpus, gpus)


def test_an_error_in_a_task_is_the_users_error() -> None:
    from ray.exceptions import RayTaskError

    inner = DecodeError("needs a codec", file="a.mp4")
    outer = RayTaskError("map", "Traceback ...", inner).as_instanceof_cause()
    assert user_error(outer) is inner
    assert user_error(RayTaskError("map", "Traceback ...", KeyError("x"))) is None
