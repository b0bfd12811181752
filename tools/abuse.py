"""Throw many random abuses at the command line and write a summary: `python tools/abuse.py --cases 3000`.

A failed case is kept in the scratch directory, with its site, stdout and stderr; `--only NUMBER` repeats it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "abuse")]

from campaign import Campaign, Outcome, describe, summary  # noqa: E402
from playground import build  # noqa: E402

from fixformer.runtime.files import write_json  # noqa: E402
from fixformer.runtime.progress import counting  # noqa: E402
from fixformer.runtime.provenance import source_commit  # noqa: E402


def main() -> None:
    options = _options()
    scratch = Path(options.scratch or tempfile.mkdtemp(prefix="abuse-"))
    site = scratch / "site"
    if not site.exists():
        build(site)
    before = json.loads(Path(options.repeat).read_text()) if options.repeat else {}
    numbers: Sequence[int] = range(options.first, options.first + options.cases)
    if before:
        numbers = [failure["case"] for failure in before["failures"]]
    elif options.only is not None:
        numbers = [options.only]
    started = time.monotonic()
    outcomes = _run_all(numbers, site, scratch, options.processes)
    result = summary(outcomes)
    result = {"first_case": numbers[0], **result, "minutes": round((time.monotonic() - started) / 60, 1)}
    if before:
        repeated = [*before.get("repeated", []), *before["failures"]]
        result = {**before, **{name: result[name] for name in ("failed", "failures")}, "repeated": repeated}
    for failure in result["failures"]:
        print(failure)
    print(f"{result['tried']:,} abuses tried, {result['failed']} not borne; failed cases are kept in {scratch}")
    if options.out:
        write_json(Path(options.out), {**result, "commit": source_commit()})
    sys.exit(1 if result["failed"] else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="repeat this case")
    parser.add_argument("--repeat", help="a summary whose failed cases are repeated, after a fix")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--scratch", help="directory for the site and the failed cases")
    parser.add_argument("--out", help="where to write the summary as JSON")
    return parser.parse_args()


def _run_all(numbers: Sequence[int], site: Path, scratch: Path, processes: int) -> list[Outcome]:
    """Each thread has a server of its own and takes the next number when it is free."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        waiting.put(number)
    outcomes: list[Outcome] = []
    with counting("abuses", len(numbers)) as progress, ThreadPoolExecutor(processes) as pool:

        def work(_: int) -> None:
            with Campaign(site, scratch) as campaign:
                while not waiting.empty():
                    outcome = campaign.run(waiting.get())
                    outcomes.append(outcome)
                    if outcome.faults:
                        print(describe(outcome), outcome.stderr[-600:], sep="\n", file=sys.stderr)
                    progress.advance()

        list(pool.map(work, range(processes)))
    return sorted(outcomes, key=lambda outcome: outcome.case.number)


if __name__ == "__main__":
    main()
