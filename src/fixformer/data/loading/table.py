"""Samples in a few arrays instead of many objects.

Reading a Python object writes to its reference count, and a forked worker then gets its own copy of that page: a
list of a million samples would slowly be copied into every worker. Reading an array writes nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fixformer.data.listing import Sample

SPLITS = ("train", "val", "test")


class SampleTable:
    """A read-only list of samples."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._text, self._ends = _pack(text for s in samples for text in (s.path, s.id, s.group or ""))
        self.labels = np.array([s.label for s in samples], np.int32)
        self._splits = np.array([SPLITS.index(s.split) for s in samples], np.uint8)
        self._spans = np.array([(_or_nan(s.start), _or_nan(s.end)) for s in samples], np.float64).reshape(-1, 2)
        self._frames = np.array([s.frames or 0 for s in samples], np.int64)  # whatever a list claims

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        path, name, group = (self._read(3 * index + k) for k in range(3))
        start, end = (None if np.isnan(value) else float(value) for value in self._spans[index])
        return Sample(
            path,
            int(self.labels[index]),
            SPLITS[self._splits[index]],
            name,
            start,
            end,
            int(self._frames[index]) or None,
            group or None,
        )

    def id(self, index: int) -> str:
        return self._read(3 * index + 1)

    def with_label(self, label: int) -> np.ndarray:
        """Numbers of the samples of one class."""
        return np.flatnonzero(self.labels == label)

    def _read(self, field: int) -> str:
        begin = int(self._ends[field - 1]) if field else 0
        return self._text[begin : int(self._ends[field])].tobytes().decode("utf-8", "surrogateescape")


def _pack(texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """All texts end to end, and where each ends. File names need not be valid UTF-8."""
    encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(item) for item in encoded], dtype=np.int64)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
