"""Schemathesis: no request that follows or breaks the OpenAPI description finds a bug, and answers are as described."""

import subprocess
import sys
from pathlib import Path

import pytest
from running_server import Running

# A video that is no video fits the description, and is refused all the same.
WORDS = ["--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage,fuzzing"]
BOUNDS = ["--max-examples", "3", "--max-time", "20", "--generation-deterministic", "--no-color"]


@pytest.mark.slow
def test_no_request_finds_a_bug(server: Running, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    command = [program, "run", f"{server.address}/openapi.json", *WORDS, *BOUNDS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Tested: 7" in done.stdout
    assert "Traceback" not in server.log.read_text()
