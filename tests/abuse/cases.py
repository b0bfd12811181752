"""One abuse: what is spoilt in the site, and the command that is run on it. Everything follows from its number."""

import ast
import inspect
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from mutations import rename_into, spoil
from nasty_text import any_name, any_text, passable, to_bytes
from playground import SETS, TINY, VIDEOS, foreign_files
from python_calls import random_call

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "1000",
    "100000",
    "1000000000",
    str(2**31),
    str(2**63),
    str(2**64),
    "-0",
)
ODD_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "1e-3",
    "0.5",
    "1e308",
    "1e999",
    "",
    "x",
    "1_000",
    "0x10",
    " 1",
    "١",
    "none",
    "2.5",
)
PATHS = (
    *("nowhere", "a/b/c", "good.mp4", "folders", "run", "weights.safetensors", "/dev/null", "/dev/zero", "/proc/x"),
    *(".", "..", "", "fifo", "loop", "names.txt", "shards/index.json", "table/index.csv", "out", "/", "home", "~"),
    "out/new/deep",
)
OUTPUTS = ("output", "out", "cache")  # settings and options that say where to write
LABEL = ("--checkpoint", "run", "--out", "out/labels", "--workers", "1", "--threads", "1", "--device", "cpu")
VERBS = (
    *("models", "recipes", "cost", "check", "prepare", "train", "eval", "predict", "timeline", "explain", "label"),
    *("doctor", "bench", "plan"),
)
SLOW = {
    "train",
    "bench",
    "fixformer.train",
    "plan",
    "fixformer.plan",
}  # may go on for long with good reason (epochs=1000000000): they are interrupted


@dataclass
class Case:
    """A command on a spoilt site. `writable` are the places in the site where it may write."""

    number: int
    abuse: str
    words: list[str] = field(default_factory=list)
    call: tuple[str, str] | None = None  # a function of the Python interface and its arguments, instead of words
    done: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=lambda: ["out", "home", "tmp"])

    @property
    def verb(self) -> str:
        """The command, the function, or "other" for a word that is neither."""
        if self.call:
            return self.call[0]
        return self.words[0] if self.words and self.words[0] in VERBS else "other"

    @property
    def patience(self) -> float:
        """Seconds after which the command is interrupted."""
        return 15.0 if self.verb in SLOW else 60.0


def make_case(number: int, site: Path) -> Case:
    """The case of this number: spoils the site, which is a fresh copy, and says what to run in it."""
    rng = random.Random(number)
    os.mkfifo(site / "fifo")
    (site / "loop").symlink_to("loop")
    abuse, make = rng.choice(ABUSES)
    case = Case(number, abuse)
    make(case, site, rng)
    case.words = [passable(word) for word in case.words]
    case.writable += _places_to_write(case.words)
    if case.call:
        case.writable += [
            value for value in ast.literal_eval(case.call[1]).values() if isinstance(value, str) and value
        ]
    case.writable += [parent for place in case.writable for parent in _new_parents(site, place)]
    return case


def _new_parents(site: Path, place: str) -> list[str]:
    """The directories that are made on the way to a place which is in the site and several levels deep."""
    if os.path.isabs(place) or ".." in Path(place).parts:
        return []
    return [str(parent) for parent in Path(place).parents if not os.path.lexists(site / parent)]


def _places_to_write(words: list[str]) -> list[str]:
    """Where the command line itself, or a default, sends the results."""
    places = ["runs"]
    for at, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        following = words[at + 1] if at + 1 < len(words) else ""
        if name in OUTPUTS or name.endswith((".output", ".cache")):
            places.append(value if equals else following)
    if words[:1] == ["prepare"]:
        places += [word for word in words[1:] if not word.startswith("--")][:3]
    if words[:1] == ["check"]:
        places += [f"check-{Path(word).name}" for word in words[1:]] + [f"check-{Path.cwd().name}", "check-"]
    return [place for place in places if place]


# --- random arguments ---


def _random_arguments(case: Case, site: Path, rng: random.Random) -> None:
    """A sensible command, with options and settings of random values, words left out, doubled and invented."""
    case.words = _sensible(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = rng.random()
        if way < 0.45:
            case.words += _random_option(case.verb, case.words, rng)
        elif way < 0.7 and case.verb in ("train", "eval", "cost", "plan"):
            case.words.append(_random_setting(rng))
        elif way < 0.8 and len(case.words) > 1:
            del case.words[rng.randrange(1, len(case.words))]
        elif way < 0.9:
            case.words[rng.randrange(len(case.words))] = rng.choice((rng.choice(PATHS), any_text(rng)))
        else:
            case.words.insert(rng.randrange(len(case.words) + 1), any_text(rng))


def _sensible(rng: random.Random) -> list[str]:
    data = rng.choice(SETS)
    videos = rng.sample(VIDEOS, rng.choice((1, 2)))
    return rng.choice(
        (
            ["models"],
            ["recipes"],
            ["cost", "fixformer_tiny"],
            ["plan", "fixformer_tiny", "--memory", "1GB", "--device", "cuda:7", "depth=1"],
            ["plan", "--recipe", "demo", "--data", data, "--rate", "5", "--memory", "1GB", "--device", "cuda:7"],
            ["timeline", "run", videos[0], "--window", "0.5", "--out", "out/timeline"],
            ["explain", "run", videos[0], "--occlusion", "1x2x2", "--out", "out/explained"],
            ["check", data, "--out", "out/check"],
            ["prepare", data, "out/prepared"],
            ["prepare", data, "out/shards", "--shards"],
            ["train", "demo", "--data", data, "--output", "out/run", "data.kind=auto", *TINY],
            ["train", data, "--output", "out/run", *TINY],
            ["train", "demo", "--data", data, "--output", "out/run", "--dry-run", "data.kind=auto", *TINY],
            ["train", "demo", "--data", "folders", "--output", "run", "--resume", "data.kind=folders", *TINY],
            ["train", "demo", "--data", data, "--init", "run", "--output", "out/run", "data.kind=auto", *TINY],
            ["eval", "run", "--output", "out/eval"],
            ["eval", "run", "--data", data],
            ["predict", "run", *videos],
            ["predict", "run", "--json", *videos],
            ["predict", *videos],
            ["predict", "run", "folders", "--csv"],
            ["doctor"],
            ["label", data, *LABEL],
            ["label", f"{data}/**/*", *LABEL, "--format", rng.choice(("csv", "jsonl"))],
            _sensible_bench(rng),
        )
    )


def _sensible_bench(rng: random.Random) -> list[str]:
    return rng.choice(
        (
            _small_clip("model", "out/bench.json"),
            ["bench", "attention", "--sides", "4", "--rounds", "1"],
            _small_clip("grid", "out/grid.json"),
            ["bench", "chunked", "fixformer_tiny:4x32", "--rounds", "1"],
            ["bench", "data", "good.mp4", "--rounds", "1", "--decodes", "2", "--loader-seconds", "0"],
            ["bench", "train", "fixformer_tiny", "--frames", "4", "--size", "32"],
        )
    )


def _small_clip(bench: str, out: str) -> list[str]:
    clip = ["--frames", "4", "--sizes", "32", "--rounds", "1"]
    return ["bench", bench, "fixformer_tiny", *clip, "--out", out]


def _random_option(verb: str, words: list[str], rng: random.Random) -> list[str]:
    """An option of the verb, or one that does not exist, with a random value of its type or of another."""
    options = option_types(verb, words)
    if not options or rng.random() < 0.05:
        return [f"--{any_text(rng)}", any_text(rng)]
    name = rng.choice(list(options))
    option = f"--{name.replace('_', '-')}"
    kind = options[name] if rng.random() < 0.85 else str
    if kind is bool:
        return [rng.choice((option, f"--no-{option[2:]}", f"{option}=1"))]
    return [option, *(_random_value(kind, rng) for _ in range(rng.choice((1, 1, 1, 0, 2))))]


def _random_value(kind: Any, rng: random.Random) -> str:
    if get_origin(kind) is Literal and rng.random() < 0.6:
        return str(rng.choice(get_args(kind)))
    if kind in (int, float) and rng.random() < 0.9:
        return rng.choice(NUMBERS if rng.random() < 0.7 else ODD_NUMBERS)
    return rng.choice((rng.choice(PATHS), any_text(rng), rng.choice(NUMBERS + ODD_NUMBERS)))


def _random_setting(rng: random.Random) -> str:
    from fixformer.config import TrainConfig
    from fixformer.config.schema import setting_types
    from fixformer.models.registry import model_setting_types

    types = dict(setting_types(TrainConfig)) | dict(model_setting_types("fixformer_tiny"))
    name = (
        rng.choice(list(types))
        if rng.random() < 0.9
        else rng.choice((any_text(rng), "init", "resume", "json", "views"))
    )
    short = name.rpartition(".")[2] if rng.random() < 0.5 else name
    return f"{short}={_random_value(_plain(types.get(name, str)), rng)}"


def option_types(verb: str, words: list[str]) -> dict[str, Any]:
    """The options of a verb with their types, from the signature of its function."""
    from fixformer.cli import app, bench_verbs, corpus_verbs, data_verbs, plan_verb, use_verbs, watch_verbs

    functions: dict[str, Callable[..., None]] = {
        **{name: getattr(app, name) for name in ("models", "cost", "train", "recipes")},
        **{"predict": use_verbs.predict, "doctor": use_verbs.doctor},
        **{"timeline": watch_verbs.timeline, "explain": watch_verbs.explain, "plan": plan_verb.plan},
        **{"label": corpus_verbs.label, "eval": app.evaluate, "check": data_verbs.check, "prepare": data_verbs.prepare},
        **{
            f"bench {name}": getattr(bench_verbs, f"bench_{name}")
            for name in ("model", "grid", "attention", "chunked", "data", "train")
        },
    }
    function = functions.get(" ".join(words[:2]) if verb == "bench" else verb)
    if function is None:
        return {}
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    # "--engine ray" would start a cluster for each abuse
    names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name != "engine"]
    return {name: _plain(hints[name]) for name in names}


def _plain(hint: Any) -> Any:
    """The type inside Annotated, `... | None` and tuple."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return _plain(next(kind for kind in get_args(hint) if kind is not NoneType))
    return _plain(get_args(hint)[0]) if get_origin(hint) is tuple else hint


# --- random bytes ---


def _random_bytes(case: Case, site: Path, rng: random.Random) -> None:
    """A file that a command reads is spoilt. Files of all rooms are equally likely, however many each has."""
    files = foreign_files(site)
    room = rng.choice(sorted({_room(name) for name in files}))
    names = [name for name in files if _room(name) == room]
    videos = [name for name in names if name.endswith((".mp4", ".webm", ".jpg"))]
    others = [name for name in names if name not in videos]
    name = rng.choice(others if others and (not videos or rng.random() < 0.8) else videos)
    case.done.append(f"{name}: {spoil(site / name, rng)}")
    case.words = _reader_of(name, room, rng)


def _room(name: str) -> str:
    parts = Path(name).parts
    return parts[0] if parts[0] != "home" else "/".join(parts[:4])


def _reader_of(name: str, room: str, rng: random.Random) -> list[str]:
    """A command that reads the file."""
    resume = ["train", "demo", "--data", "folders", "--output", "run", "--resume", "data.kind=folders", *TINY]
    again = ["train", "demo", "--data", "folders", "--output", "out/run", "data.kind=folders", *TINY]
    if room == "run":
        use_run = (
            ["eval", "run", "--json"],
            ["predict", "run", "good.mp4", "--json"],
            ["label", "good.mp4", *LABEL],
            resume,
            [*again, "--init", "run"],
        )
        return rng.choice(use_run)
    if room == "weights.safetensors":
        return [*again, "--init", "weights.safetensors"]
    if room.startswith("home"):
        return rng.choice((again, resume, ["check", "folders", "--out", "out/check"]))
    if room == "names.txt":
        return rng.choice(
            (
                ["check", "table", "--labels", room, "--out", "out/c"],
                ["eval", "run", "--data", "folders", f"labels={room}"],
            )
        )
    if room in SETS:
        commands = [
            ["check", room, "--out", "out/check", "--json"],
            ["train", "demo", "--data", room, "--output", "out/run", "data.kind=auto", *TINY],
            ["eval", "run", "--data", room, "--json"],
            ["prepare", room, "out/prepared", "--json"],
            ["label", f"{room}/index.csv" if room == "table" else room, *LABEL],
        ]
        commands += {"prepared": [["prepare", "folders", "prepared"]] * 3}.get(room, [])
        shards = ["prepare", "folders", "shards", "--shards", "--shard-videos", "4"]
        stream = ["eval", "run", "--data", "shards", "location=shards"]
        commands += {"shards": [shards, stream, [*stream[:-1], "location=pipe:cat shards/{shard}"]]}.get(room, [])
        return rng.choice(commands)
    return ["predict", "run", name, "good.mp4", "--json"]


# --- random names ---


def _random_names(case: Case, site: Path, rng: random.Random) -> None:
    """Files, classes, sets or the output directory get other names."""
    room = rng.choice(("folders", "frames", "images", "table", "video", "output"))
    name = any_name(rng)
    data, output = room, "out/result"
    if room in ("folders", "frames", "images"):
        if rng.random() < 0.7:
            case.done.append(f"class {name!r}: {rename_into(site, f'{room}/left', name)}")
        else:
            first = next((site / room / "right").iterdir())
            new = any_name(rng, first.suffix)
            case.done.append(f"video {new!r}: {rename_into(site, str(first.relative_to(site)), new)}")
        if rng.random() < 0.3:
            case.done.append(f"set {name!r}: {(moved := rename_into(site, room, name))}")
            data = f"./{name}" if moved else room
        (site / "folders" / "groups.csv").unlink(missing_ok=True)
    elif room == "table":
        label = any_text(rng).replace('"', '""')
        text = (site / "table/index.csv").read_text().replace("left", f'"{label}"')
        (site / "table/index.csv").write_bytes(to_bytes(text))
        (site / "table/labels.txt").unlink()
        case.done.append(f"label {label!r}")
    elif room == "video":
        name = any_name(rng, ".mp4")
        data = f"./{name}" if rename_into(site, "good.mp4", name) else "good.mp4"
    else:
        data, output = "folders", f"out/{name}"
    case.words = _on_named(room, data, output, rng)


def _on_named(room: str, data: str, output: str, rng: random.Random) -> list[str]:
    if room == "video":
        return ["predict", "run", data, *rng.choice(([], ["--json"]))]
    return rng.choice(
        (
            ["check", data, "--out", output, *rng.choice(([], ["--json"]))],
            ["prepare", data, output],
            ["prepare", data, output, "--shards"],
            ["train", "demo", "--data", data, "--output", output, "data.kind=auto", *TINY],
            ["eval", "run", "--data", data, "--output", output],
            ["label", data, "--checkpoint", "run", "--out", output, *LABEL[4:]],
        )
    )


def _python_calls(case: Case, site: Path, rng: random.Random) -> None:
    case.call = random_call(rng, PATHS)


ABUSES = (
    *(("arguments", _random_arguments),) * 3,
    *(("bytes", _random_bytes),) * 4,
    *(("names", _random_names),) * 2,
    ("python", _python_calls),
)
