"""What a video is read from: a regular file that holds something."""

import errno
import os
from pathlib import Path

from fixformer.runtime.files import require_regular


def require_content(path: str | Path) -> None:
    """Raise an `OSError` unless a path is that of a regular file that is not empty; for use before it is opened.

    A file of /proc counts as a regular one of no bytes, and reading it may block for ever.
    """
    require_regular(path)
    if os.stat(path).st_size == 0:
        raise OSError(errno.ENODATA, "the file is empty", str(path))
