"""Wrong words on the command line: one sentence, the right status, before anything is written or measured.

The same checks hold for the Python functions behind the commands.
"""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import fixformer
from fixformer.bench.attention_speed import bench_attention
from fixformer.bench.chunked_inference import bench_chunked
from fixformer.bench.model_speed import bench_model
from fixformer.bench.reading import bench_data
from fixformer.bench.speed_grid import bench_grid
from fixformer.bench.training_step import bench_train
from fixformer.cli.app import ISSUES, commands, main
from fixformer.config.recipes import RECIPES
from fixformer.data.audit.check import check
from fixformer.data.prepare.prepare import prepare
from fixformer.errors import SettingsConflict, UnknownName, UserError
from fixformer.training.request import resolve_config
from fixformer.training.run import plan
from tiny_run import TINY, tiny_set

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def motions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_set(tmp_path_factory.mktemp("abuse") / "motions")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


def failure(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and error of a command in this process."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    shown = capsys.readouterr()
    assert shown.err.startswith("fixformer: "), shown.err
    assert shown.err.count("\n") == 1, shown.err
    assert shown.out == ""
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, shown.err.removeprefix("fixformer: ")


@pytest.mark.parametrize(
    ("words", "status", "parts"),
    [
        ("trian", 2, ["'trian'", "train"]),
        ("nonsense --help", 2, ["'nonsense'"]),
        ("bench modle", 2, ["'bench modle'", "bench model"]),
        ("bench trian --help", 2, ["bench train"]),
        ("--json models", 2, ["'--json'"]),
        ("train --ouput x", 2, ["'--ouput'", "--output"]),
        ("train --epocs 3", 2, ["'--epocs'", "--epochs"]),
        ("train demo epocs=3 --data x", 1, ["'epocs'", "epochs"]),
        ("cost fixfromer_base", 1, ["'fixfromer_base'", "fixformer_base"]),
        ("cost fixformer_base dept=3", 1, ["'dept'", "depth"]),
        ("models zzz*", 1, ["'zzz*'", "no model"]),
        ("models fixfromer_tiny", 1, ["no model", "did you mean fixformer_tiny"]),
        ("check", 2, ["DATA"]),
        ("prepare a", 2, ["DIRECTORY"]),
        ("eval", 2, ["CHECKPOINT"]),
        ("eval nothing vews=2x3", 1, ["'vews'", "views"]),
        ("cost --frames many", 2, ["--frames='many'", "int"]),
        ("cost --frames 8 num_frames=4", 1, ["num_frames", "8", "4"]),
        ("cost --size 1000000000", 1, ["1000000000"]),
        ("cost --out x", 1, ["--out x", "--table"]),
        ("plan fixfromer_base", 1, ["'fixfromer_base'", "fixformer_base"]),
        ("plan fixformer_tiny --memory lots", 1, ["memory='lots'", "24GB"]),
        ("plan fixformer_tiny --device gpu9", 1, ["device='gpu9'"]),
        ("plan fixformer_tiny --devices 8", 1, ["devices=8", "recipe"]),
        ("plan --recipe demo", 1, ["data", "videos"]),
        ("plan --recipe demo --videos 100 --rate fast", 2, ["--rate='fast'"]),
        ("train nothing", 1, ["recipe or data set 'nothing'", "demo"]),
        ("train ./vids", 1, ["no such file or directory", "./vids"]),
        ("train a/b", 1, ["no such file or directory", "a/b"]),
        ("train x.csv", 1, ["no such file or directory", "x.csv"]),
        ("train demo --data x data=y", 2, ["data", "'x'", "'y'"]),
        ("train demo recipe=folder", 2, ["recipe", "'demo'", "'folder'"]),
        ("train demo --data x --output= ", 2, ["--output"]),
        ("train demo --data x micro_batch=0", 1, ["micro_batch=0", "at least 1"]),
        ("train demo --data x lr=inf", 1, ["lr=inf", "finite"]),
        ("bench model --out /proc/x", 1, ["/proc"]),
        ("bench model --out .", 1, ["--out .", "bench.json"]),
        ("bench model --out x.png", 1, ["x.png", "x.json"]),
        ("bench model x3d_m", 1, ["x3d_m", "softmax"]),
        ("bench grid x3d_m", 1, ["x3d_m", "softmax"]),
        ("bench grid --rounds 0", 1, ["rounds=0"]),
        ("bench model --frames", 2, ["--frames"]),
        ("bench chunked tsm_r50:8x64", 1, ["tsm_r50", "chunks"]),
        ("bench train --data nowhere", 1, ["nowhere"]),
        ("bench data --rounds 0", 1, ["rounds=0"]),
        ("cost --table paper --out /proc/x", 1, ["/proc/x"]),
        ("predict nothing x --top-k few", 2, ["--top-k='few'"]),
        ("eval nothing --device gpu9", 1, ["device='gpu9'"]),
    ],
)
def test_one_sentence(words: str, status: int, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found, sentence = failure(*words.split(), capsys=capsys)
    assert (found, list(Path().iterdir())) == (status, [])
    assert all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    "option",
    [
        *("--short-side -4", "--short-side 1", "--shard-videos 0", "--quality 99", "--quality -1", "--keyframes 0"),
        *(f"--keyframes {2**40}", "--workers -1", "--damaged lax", "--kind nonsense"),
    ],
)
def test_prepare_claims_no_directory_for_wrong_arguments(
    option: str, motions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, sentence = failure("prepare", str(motions), "new", *option.split(), capsys=capsys)
    name, value = option.removeprefix("--").split()
    assert status in (1, 2)
    assert name.partition("-")[0] in sentence
    assert value in sentence
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *((prepare, {"src": "x", "dst": "new", name: value}) for name, value in [
            ("short_side", -4), ("shard_videos", 0), ("quality", 99), ("keyframes", 0), ("workers", -1),
            ("damaged", "lax"), ("short_side", "256"), ("shards", "yes"),
        ]),
        *((check, {"data": "x", name: value}) for name, value in [("min_frames", -3), ("workers", -1), ("again", 2)]),
        *((bench_model, {name: value}) for name, value in [
            ("frames", ()), ("sizes", (0,)), ("threads", 0), ("rounds", 0), ("threads", 10**6),
        ]),
        *((bench_grid, {name: value}) for name, value in [("frames", (0,)), ("sizes", ()), ("rounds", 0), ("out", "")]),
        *((bench_attention, {name: value}) for name, value in [("sides", ()), ("rounds", 0), ("seconds", -1)]),
        *((bench_chunked, {name: value}) for name, value in [("cases", ()), ("rounds", 0), ("threads", 2.5)]),
        *((bench_data, {name: value}) for name, value in [("rounds", 0), ("decodes", -1), ("loader_seconds", -1)]),
        *((bench_train, {name: value}) for name, value in [("clips", ()), ("batch", 0), ("rounds", 0)]),
        *((fixformer.train, {"recipe": "demo", "data": "x", name: "yes"}) for name in ("resume", "fork", "shard")),
    ],
)  # fmt: skip
def test_functions_check_their_arguments(function: Callable[..., object], arguments: dict[str, Any]) -> None:
    name = list(arguments)[-1]
    with pytest.raises(UserError, match=name):
        function(**arguments)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["train", "demo", "data={motions}", "output=out", "dry_run=1"],
        ["train", "recipe=demo", "--data", "{motions}", "data={motions}", "--dry-run", "--epochs", "3"],
        ["train", "--dry-run", "{motions}", "resume=0", "fork=false", "shard=0", "json=1", "model=fixformer_tiny"],
    ],
)
def test_options_and_settings_are_interchangeable(
    words: list[str], motions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(motions=motions) for word in words]
    main([*words, "size=16", "frames=4"])
    assert f'"{motions}"' in capsys.readouterr().out


def test_init_as_a_setting(motions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("r0").write_bytes(b"no weights")
    status, sentence = failure("train", "demo", "init=r0", f"data={motions}", "--dry-run", capsys=capsys)
    assert status == 1
    assert "r0" in sentence


def test_any_data_set_stands_in_the_place_of_a_recipe(motions: Path) -> None:
    """A directory, a list file, an annotation file; as text and as a path."""
    files = sorted(motions.rglob("*.mp4"))[:4]
    Path("index.csv").write_text("path,label\n" + "".join(f"{file},{i % 2}\n" for i, file in enumerate(files)))
    Path("train.txt").write_text("".join(f"{file} 8 {i % 2}\n" for i, file in enumerate(files)))
    for path in (motions, Path("index.csv"), Path("train.txt")):
        for given in (path, str(path), f"./{path}" if not path.is_absolute() else str(path)):
            config = resolve_config(given)
            assert (config.recipe, Path(config.data.path)) == ("auto", path)
    assert resolve_config("index.csv", data="index.csv").data.path == "index.csv"
    with pytest.raises(SettingsConflict, match=r"index\.csv.*train\.txt"):
        resolve_config("index.csv", data="train.txt")
    with pytest.raises(UserError, match="no such file or directory: gone"):
        resolve_config(Path("gone"))
    with pytest.raises(UnknownName, match=r"'dmeo'.*demo"):
        resolve_config("dmeo", data="index.csv")


def test_a_recipe_is_preferred_to_a_directory_of_its_name(motions: Path) -> None:
    assert "demo" in RECIPES
    Path("demo").mkdir()
    assert resolve_config("demo", data=motions).recipe == "demo"


def test_data_may_be_given_as_any_of_its_names(motions: Path) -> None:
    for name in ("data", "path", "data.path"):
        assert resolve_config("demo", **{name: str(motions)}).data.path == str(motions)
    with pytest.raises(SettingsConflict, match=r"data\.path.*x"):
        resolve_config("demo", data=motions, path="x")
    with pytest.raises(UserError, match="needs data"):
        resolve_config("demo")


def test_a_plan_of_a_config(motions: Path) -> None:
    assert plan(resolve_config("demo", data=motions, **TINY), epochs=3).steps > 0


def fixformer_process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fixformer", *words], stderr=subprocess.PIPE, text=True, check=False, **options
    )


def test_the_version() -> None:
    assert fixformer_process("--version", stdout=subprocess.PIPE).stdout == f"fixformer {fixformer.__version__}\n"


def test_a_full_disk_behind_stdout() -> None:
    with open("/dev/full", "w") as full:
        done = fixformer_process("models", stdout=full)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_streams_that_are_closed() -> None:
    for redirection in (">&-", "2>&-", "| head -1"):
        command = f"{sys.executable} -m fixformer models {redirection}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), redirection


def test_a_reader_that_has_seen_enough() -> None:
    """Also in the middle of the results, not only at their end."""
    code = (
        "from fixformer.cli import app\n"
        "def talk(words):\n    while True: print('x' * 99)\n"
        "app.commands.run = talk; app.main()"
    )
    command = f'{{ {sys.executable} -c "{code}"; echo $? >status; }} | head -1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stderr, Path("status").read_text()) == ("", "0\n")


def test_an_error_is_told_although_nobody_reads_the_results() -> None:
    command = f"{{ {sys.executable} -m fixformer models zzz; echo $? >status; }} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "zzz" in done.stderr
    assert Path("status").read_text() == "1\n"


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (OSError(28, "No space left on device", "runs/x"), 1, "runs/x"),
        (BrokenPipeError(32, "Broken pipe"), 1, "Broken pipe"),  # of another pipe than stdout
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), 1, "worker"),
        (RecursionError("maximum recursion depth exceeded"), 1, "nested"),
        (UserError("what, which value"), 1, "what, which value"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_failures_end_in_one_place(
    error: BaseException, status: int, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*words: object) -> None:
        raise error

    monkeypatch.setattr(commands, "run", fail)
    for words in (["models"], ["models", "--traceback"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == status
        lines = capsys.readouterr().err.splitlines()
        assert part in (lines[-1] if lines else "")
        assert any("Traceback" in line for line in lines) == (part != "" and "--traceback" in words)


def test_traceback_is_a_file_name_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    status, sentence = failure("recipes", "--", "--traceback", capsys=capsys)
    assert status == 1
    assert "'--traceback'" in sentence


def test_a_bug_says_where_to_send_it() -> None:
    """Its traceback comes first; in the same process, as in a test, the error itself arrives."""
    code = (
        "import sys; from fixformer.cli import app; sys.argv = ['fixformer', 'models']\n"
        "def fail(words): raise KeyError('oops')\n"
        "app.commands.run = fail; app.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "KeyError: 'oops'" in done.stderr.splitlines()[-2]
    last = done.stderr.splitlines()[-1]
    assert all(part in last for part in ("fixformer: ", "bug", fixformer.__version__, ISSUES))


def test_the_page_for_bugs_is_that_of_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Issues"] == ISSUES


def test_nothing_is_measured_for_an_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(*_: object) -> NoReturn:
        pytest.fail("measured")

    monkeypatch.setattr("fixformer.bench.model_speed.measure_apart", measure)
    with pytest.raises(SystemExit, match="1"):
        main(["bench", "model", "--out", "/proc/x"])
    assert "/proc" in capsys.readouterr().err
