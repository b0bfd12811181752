"""The decode-once cache of a study is filled before its rows begin: side by side, each of them would decode the set."""

from collections.abc import Iterable
from dataclasses import replace

from fixformer.config.schema import dump
from fixformer.data.loading import reader_for
from fixformer.experiments.study_plan import Task
from fixformer.runtime.progress import progress
from fixformer.runtime.signals import StopRequest


def decode_once(tasks: Iterable[Task], processes: int, stop: StopRequest) -> None:
    """Decode the videos of every split that these tasks read, with as many processes as there will be rows."""
    with progress("decoding once") as show:

        def report(done: int, total: int, what: str | None = None) -> None:
            show(done, total, what)
            if stop:
                raise stop.interruption("stopped while decoding; the decoded videos are kept, run it again.")

        known: set[str] = set()
        for task in tasks:
            clip, data = task.config.clip, replace(task.config.data, workers=processes)
            for split in ("train", task.index.eval_split, task.scoring.split):
                # what the cache keeps of a video does not depend on the clips that are cut from it
                wanted = repr((split, clip.keep_frames, clip.keep_short_side, dump(data)))
                if wanted not in known and data.cache is not None:
                    known.add(wanted)
                    reader_for(task.index.split(split), clip, data, report)
