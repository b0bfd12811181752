"""What is the user's own does not come with a file, and a location never meets a shell."""

import pytest

from fixformer.config import DataConfig, TrainConfig
from fixformer.config.location import is_location, shard_command, shard_file
from fixformer.config.own import with_own, without_own
from fixformer.config.schema import dump, load
from fixformer.errors import UserError

OWN = TrainConfig(
    recipe="r", init="w", output="o", data=DataConfig("d", location="pipe:cat {shard}", workers=7), epochs=5
)


def test_the_users_own_settings_are_neither_stored_nor_read() -> None:
    values = without_own(dump(OWN))
    assert not {"init", "output"} & set(values)
    assert not {"cache", "location"} & set(values["data"])
    assert without_own(values) == values
    read = load(TrainConfig, values)
    assert (read.data.path, read.data.workers, read.epochs) == ("d", 7, 5)
    assert with_own(read, OWN) == OWN


@pytest.mark.parametrize(("stored", "kept"), [("auto", "auto"), ("/x", None), (None, None), ("AUTO", None)])
def test_of_caches_only_the_readers_own_is_kept(stored: str | None, kept: str | None) -> None:
    values = without_own(dump(TrainConfig(data=DataConfig("d", cache=stored))))
    assert load(TrainConfig, values).data.cache == kept


def test_a_file_with_other_types_is_left_to_the_schema() -> None:
    assert without_own({"data": 5, "output": []}) == {"data": 5}


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".x", "a\0", "a\\b"])
def test_a_recipe_is_no_path(name: str) -> None:
    with pytest.raises(UserError, match="recipe="):
        load(TrainConfig, {"recipe": name, "data": {"path": "d"}})


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("pipe:cat /x/{shard}", ["cat", "/x/a.tar"]),
        ("pipe:ssh host 'cat \"/my files/{shard}\" | zcat'", ["ssh", "host", 'cat "/my files/a.tar" | zcat']),
        ("pipe:sh -c 'echo # ${X}; cat {shard}'", ["sh", "-c", "echo # ${X}; cat a.tar"]),
        ("gs://b/{shard}", ["gsutil", "-q", "cat", "gs://b/a.tar"]),
        ("s3://b/{shard}", ["aws", "s3", "cp", "--only-show-errors", "s3://b/a.tar", "-"]),
    ],
)
def test_a_command_is_a_list_of_arguments(location: str, expected: list[str]) -> None:
    assert is_location(location)
    assert shard_command(location, "a.tar") == expected


def test_a_url_is_the_last_argument_of_curl() -> None:
    for scheme in ("http", "https"):
        words = shard_command(f"{scheme}://h/{{shard}}?a=1&b=$(x)", "a.tar")
        assert (words[0], words[-1]) == ("curl", f"{scheme}://h/a.tar?a=1&b=$(x)")


@pytest.mark.parametrize(
    ("location", "path"), [("/x", "/x/a.tar"), ("file:/x/{shard}", "/x/a.tar"), ("/{shard}/{shard}", "/a.tar/a.tar")]
)
def test_a_file(location: str, path: str) -> None:
    assert is_location(location)
    assert shard_command(location, "a.tar") is None
    assert shard_file(location, "a.tar") == path


@pytest.mark.parametrize(
    "location",
    [
        *("", "pipe:", "pipe: ", "pipe:cat x", "pipe:{shard} | sh", "pipe:cat {shard}|sh", "pipe:cat {shard} > /x"),
        *("pipe:cat '{shard}", "pipe:a & cat {shard}", "pipe:a; cat {shard}", "pipe:cat {shard}\0", "a\0b"),
        *("pipe:{shard} x", "pipe:./{shard} {shard}", "pipe:'' {shard}"),
        *("http://host/x.tar", "ftp://host/{shard}", "://{shard}", "HTTP://host/{shard}"),
    ],
)
def test_not_a_location(location: str) -> None:
    assert not is_location(location)
