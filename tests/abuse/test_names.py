"""Names of any kind, outputs among the data, and machines without matplotlib, space or a home, as a user meets them."""

import errno
import json
import os
import site
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from process import Ended, run

import fixformer
from fixformer.cli.app import main
from fixformer.data.audit.overlap import overlap_notes
from fixformer.data.listing import Index, Sample, load_index
from fixformer.errors import UserError
from fixformer.runtime.files import WriteError
from fixformer.runtime.locks import locked
from tiny_run import TINY
from videos import encode, moving_square, textured

NAMES = [
    b"left",
    b"left ",
    b"caf\xe9",
    b"$x^2$ $",
    b"a\nb",
    "👩‍🚀".encode(),
    b"n" * 255,
    b"--foo",
    b"\x1b[31mred\x1b[0m",
]
NAMES += [b'=HYPERLINK("x")', b"[red]", b"a.tar::1+2", b"{shard}", b"%d", b"~nobody", b"pipe:x"]
NAMES += ["\u202eltr".encode()]
FILES = [b"0.mp4", b"v \xe9\x1b[2J.mp4", b"concat:a|b.mp4"]
ONCE = {"epochs": 1, "stages": "", "warmup_epochs": 0, "keep_short_side": "none", "batch_size": 2}
SETTINGS = [f"{name}={value}" for name, value in {**TINY, **ONCE}.items()]


def make_set(root: Path, names: list[bytes], files: list[bytes]) -> Path:
    for number, name in enumerate(names):
        folder = os.path.join(os.fsencode(root), name)
        os.makedirs(folder)
        for seed, file in enumerate(files):
            path = Path(os.fsdecode(os.path.join(folder, file)))
            path.write_bytes(encode(textured(100 * number + seed, 8)[:, :32, :40]))
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of four videos."""
    return make_set(tmp_path_factory.mktemp("small") / "set", [b"left", b"right"], [b"%d.mp4" % i for i in range(4)])


def assert_tame(ended: Ended) -> None:
    """Nothing was printed that acts on a terminal."""
    for text in (ended.stdout, ended.stderr):
        assert not [letter for letter in text if letter != "\n" and not letter.isprintable() and letter != "\u200d"]


@pytest.mark.slow
def test_every_verb_works_on_any_names(tmp_path: Path) -> None:
    make_set(tmp_path / "odd", NAMES, FILES)
    train = ["train", "demo", *SETTINGS, "kind=auto"]
    for words in (
        ["check", "odd"],
        ["prepare", "odd", "files", "--short-side", "32"],
        ["prepare", "odd", "shards", "--short-side", "32", "--shards"],
        ["check", "files"],
        ["check", "shards"],
        [*train, "--data", "odd", "--output", "run"],
        ["eval", "run", "--data", "files", "--output", "evaluation"],
        ["predict", "run", *(os.fsdecode(os.path.join(b"odd", name, FILES[1])) for name in NAMES)],
    ):
        ended = run(words, tmp_path)
        assert ended.status == 0, ended.stderr
        assert_tame(ended)
    for target in ("files", "shards"):
        assert load_index(tmp_path / target).labels == load_index(tmp_path / "odd").labels
    table = (tmp_path / "files" / "index.csv").read_text(encoding="utf-8")
    assert not [line for line in table.split("\n") for cell in line.split(",") if cell.startswith(("=", '"='))]
    for place in ("run/evaluation", "evaluation"):
        page = (tmp_path / place / "report.html").read_text(encoding="utf-8")
        assert "\x1b" not in page
        assert json.loads((tmp_path / place / "evaluation.json").read_text())["labels"]
        assert (tmp_path / place / "confusion.png").exists()


@pytest.mark.parametrize("words", [["check", "\x1b[31mred"], ["eval", "\x1b[31m\nred"], ["prepare", "\udce9", "out"]])
def test_an_error_prints_names_harmlessly(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()


class TestOutputsAmongTheData:
    def test_check_and_train_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(make_set(tmp_path / "videos", [b"left", b"right"], [b"%d.mp4" % i for i in range(4)]))
        monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
        before = load_index(".")
        settings = [*SETTINGS, "cache=clips"]
        main(["check", "."])
        main(["train", ".", *settings, "model=fixformer_tiny"])
        main(["check", ".", "--out", "checked/again"])
        capsys.readouterr()
        main(["train", ".", *settings, "model=fixformer_tiny", "--output", "runs/two"])
        assert "skipped: check-videos, checked, clips, runs" in capsys.readouterr().err
        main(["prepare", ".", "prepared"])
        main(["prepare", ".", "prepared"])
        main(["eval", "runs/two", "--output", "right/evaluation"])
        after = load_index(".")
        assert (after.labels, after.samples) == (before.labels, before.samples)
        assert load_index("prepared").labels == before.labels

    def test_an_output_is_no_data_set(self, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main(["check", str(small), "--out", str(tmp_path / "out")])
        with pytest.raises(SystemExit):
            main(["check", str(tmp_path / "out")])
        assert "`fixformer check`" in capsys.readouterr().err

    @pytest.mark.parametrize("place", ["rep", "left", "."])
    @pytest.mark.parametrize("verb", ["check", "train", "prepare"])
    def test_a_place_with_files_of_its_own_is_refused_before_any_work(
        self,
        verb: str,
        place: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(make_set(tmp_path / "videos", [b"left", b"right"], [b"0.mp4", b"1.mp4"]))
        os.mkdir("rep")
        Path("rep/mine.txt").touch()
        before = sorted(Path().rglob("*"))
        words = {"check": ["--out", place], "train": ["--output", place], "prepare": [place]}[verb]
        with pytest.raises(SystemExit):
            main([verb, ".", *words])
        assert "would be read as data" in capsys.readouterr().err
        assert sorted(Path().rglob("*")) == before

    def test_an_empty_place_is_no_class(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(make_set(tmp_path / "videos", [b"left", b"right"], [b"%d.mp4" % i for i in range(4)]))
        monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
        os.mkdir("results")
        main(["train", ".", *SETTINGS, "model=fixformer_tiny", "--output", "results"])
        assert load_index(".").labels == ["left", "right"]


def test_check_does_not_write_where_another_command_works(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fixformer.runtime.pools.crash_safe_map", None)
    with locked(tmp_path / "run"), pytest.raises(SystemExit):
        main(["check", str(small), "--out", str(tmp_path / "run")])
    assert "is in use by" in capsys.readouterr().err


class TestAReportThatCannotBeWritten:
    def test_in_the_default_place(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(f"check-{small.name}").touch()
        main(["check", str(small)])
        said = capsys.readouterr()
        assert ": usable" in said.out
        assert said.err.count("the report is not written: ") == 1

    def test_on_a_disk_that_is_full(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full_disk(*_: object) -> NoReturn:
            raise WriteError("No space left on device.")

        monkeypatch.setattr("fixformer.data.audit.check_report.write_json", full_disk)
        main(["check", str(small), "--out", str(tmp_path / "out")])
        said = capsys.readouterr()
        assert ": usable" in said.out
        assert said.err.count("the report is not written: No space left on device.") == 1


def test_the_name_of_an_output_is_printed_on_one_line(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", str(small), "--out", str(tmp_path / "a\nb")])
    assert "a\\nb/report.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"recipe": None}, "recipe=None"),
        ({"recipe": 5}, "recipe=5"),
        ({"recipe": "demo", "data": 5}, "data=5"),
        ({"recipe": "demo", "output": 5}, "output=5"),
        ({"recipe": "demo", "init": 5}, "init=5"),
        ({"recipe": "nosuch"}, "no file, directory, recipe or data set 'nosuch'"),
        ({"recipe": "n" * 300}, "no file"),
    ],
)
def test_arguments_of_train_that_are_no_paths(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        fixformer.train(**arguments)


def test_a_video_that_is_often_in_test_is_named_briefly(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.mp4" for number in range(5)]
    for path in paths:
        path.write_bytes(b"the same")
    samples = [Sample(str(path), 0, "val" if number else "train", path.name) for number, path in enumerate(paths)]
    (text,) = overlap_notes(Index(tmp_path, "csv", samples, ["a"]))
    assert f"too high: 4, first {paths[0]} = {paths[1]} and 3 more;" in text


@pytest.fixture(scope="module")
def without_matplotlib(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a plain `pip install .`: all that is installed here, except matplotlib."""
    home = tmp_path_factory.mktemp("plain")
    (home / "packages").mkdir()
    for folder in site.getsitepackages():
        for path in Path(folder).iterdir():
            if not path.name.startswith(("matplotlib", "mpl_")) and path.suffix != ".pth":
                (home / "packages" / path.name).symlink_to(path)
    forget = "sys.path[:] = [path for path in sys.path if not path.endswith(('site-packages', 'dist-packages'))]"
    (home / "sitecustomize.py").write_text(f"import sys\n{forget}\n")
    source = Path(fixformer.__file__).parents[1]
    return {"PYTHONPATH": os.pathsep.join(map(str, (home, source, home / "packages")))}


@pytest.mark.slow
class TestWithoutMatplotlib:
    def test_check(self, small: Path, tmp_path: Path, without_matplotlib: dict[str, str]) -> None:
        ended = run(["check", str(small), "--out", "out"], tmp_path, env=without_matplotlib)
        assert ended.status == 0
        assert ended.stderr.count("fixformer[plots]") == 1
        names = {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
        assert names == {"report.json", "report.txt"}

    def test_the_paper_tables(self, tmp_path: Path, without_matplotlib: dict[str, str]) -> None:
        ended = run(["cost", "--table", "paper", "--out", "out"], tmp_path, env=without_matplotlib)
        assert ended.status == 0
        assert ended.stderr.count("fixformer[plots]") == 1
        assert json.loads((tmp_path / "out" / "paper_tables.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "FIXFORMER_CACHE"])
def test_check_does_without_a_cache(small: Path, tmp_path: Path, variable: str) -> None:
    names = ("HOME", "XDG_CACHE_HOME", "FIXFORMER_CACHE")
    env = {name: "" for name in names[names.index(variable) + 1 :]} | {variable: "/proc/none"}
    ended = run(["check", str(small), "--out", "out"], tmp_path, env=env)
    assert ended.status == 0
    assert ended.stderr.count("/proc/none") == 1
    assert (tmp_path / "out" / "histograms.png").exists()


def test_training_does_without_a_cache_that_fills_the_disk(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full_disk(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
    monkeypatch.setattr("fixformer.data.loading.cache._append", full_disk)
    settings = [*SETTINGS, f"cache={tmp_path}/clips", "workers=0"]
    main(["train", str(small), *settings, "model=fixformer_tiny", "--output", str(tmp_path / "run")])
    assert capsys.readouterr().err.count("every video is decoded each time") >= 1


def test_training_does_without_a_cache(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fixformer.evaluation.report.can_draw", lambda: False)
    (tmp_path / "file").touch()
    settings = [*SETTINGS, f"cache={tmp_path}/file"]
    main(["train", str(small), *settings, "model=fixformer_tiny", "--output", str(tmp_path / "run")])
    assert capsys.readouterr().err.count("every video is decoded each time") == 1


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 60 KiB; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.slow
class TestAFullDisk:
    @pytest.mark.parametrize("options", [[], ["--shards", "--shard-videos", "2"]])
    def test_prepare_stops_and_goes_on(self, tiny_disk: Path, tmp_path: Path, options: list[str]) -> None:
        for name in ("left", "right"):
            (tmp_path / "set" / name).mkdir(parents=True)
            for number in range(6):
                video = encode(moving_square(12, 96, 128, seed=number), options={"crf": "10"})
                (tmp_path / "set" / name / f"{number}.mp4").write_bytes(video)
        words = ["prepare", "set", "disk/out", "--quality", "1", "--workers", "2", *options]
        ended = run(words, tmp_path)
        assert ended.status == 1
        assert "disk/out" in ended.sentence
        assert "No space left on device" in ended.sentence
        assert "failed" not in ended.stderr
        subprocess.run(["mount", "-o", "remount,size=4m", tiny_disk], check=True)
        done = run(words, tmp_path)
        assert done.status == 0
        assert done.stdout.startswith("12 videos")
        assert not list(tiny_disk.rglob("*.tmp"))

    def test_check_names_the_place(self, small: Path, tiny_disk: Path, tmp_path: Path) -> None:
        (tiny_disk / "filling").write_bytes(b"x" * 60 * 1024)
        ended = run(["check", str(small), "--out", "disk/out"], tmp_path)
        assert ended.status == 0  # that of the verdict
        assert "usable" in ended.stdout
        (line,) = [line for line in ended.stderr.splitlines() if "the report is not written" in line]
        assert "disk/out" in line
        assert "No space left on device" in line

    def test_the_cache_of_check_is_not_needed(self, small: Path, tiny_disk: Path, tmp_path: Path) -> None:
        (tiny_disk / "filling").write_bytes(b"x" * 60 * 1024)
        ended = run(["check", str(small), "--out", "out"], tmp_path, env={"FIXFORMER_CACHE": str(tiny_disk)})
        assert ended.status == 0
        assert "usable" in ended.stdout


@pytest.mark.slow
def test_links_in_circles_end(small: Path, tmp_path: Path) -> None:
    root = make_set(tmp_path / "set", [b"left", b"right"], [b"%d.mp4" % i for i in range(30)])
    for link, target in (("a", "b"), ("b", "a"), ("here", "."), ("left/up", ".."), ("left/x.mp4", "x.mp4")):
        (root / link).symlink_to(target)
    ended = run(["check", "set"], tmp_path)
    assert ended.status == 0
    assert "2 classes" in ended.stdout
    assert "x.mp4: Too many levels of symbolic links" in ended.stdout
    assert run(["check", "set/a"], tmp_path).status == 1


@pytest.mark.parametrize("verb", ["check", "prepare"])
def test_a_place_that_cannot_be_written_is_named_before_any_work(
    verb: str, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fixformer.runtime.pools.crash_safe_map", None)
    place = ["--out", "/proc/none/such"] if verb == "check" else ["/proc/none/such"]
    with pytest.raises(SystemExit):
        main([verb, str(small), *place])
    assert "/proc/none/such cannot be written" in capsys.readouterr().err
