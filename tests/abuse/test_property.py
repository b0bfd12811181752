"""Random abuses of every verb: no traceback, no hang, no child left over, nothing written outside the output.

`python tools/abuse.py --cases 3000` is the longer run; its summary is results/abuse.json.
"""

from pathlib import Path

import pytest
from campaign import Campaign, describe
from playground import build

CASES, PART = 100, 25


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("abuse") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "")  # restored afterwards: building the site sets another
        for name in ("XDG_CACHE_HOME", "TMPDIR", "MPLCONFIGDIR"):
            patch.setenv(name, "")
        build(place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, CASES, PART))
def test_random_abuses_are_borne(first: int, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Campaign(site, tmp_path) as campaign:
        outcomes = [campaign.run(number) for number in range(first, first + PART)]
    with capsys.disabled():
        print(f"{len(outcomes)} abuses tried (cases {first} to {first + PART - 1})")
    failures = [(describe(one), one.stderr[-1500:]) for one in outcomes if one.faults]
    assert not failures, failures
