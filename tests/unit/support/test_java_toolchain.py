"""A missing JDK is a counted skip; what is cached appears once and whole."""

import threading
import time
from pathlib import Path

import pytest

from tests.support import java_toolchain
from tests.support.java_toolchain import classes, jars, made_once, require_java


@pytest.fixture
def only_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_toolchain, "find_tools", lambda: {"java": "/some/bin/java"})


def test_missing_tools_are_named_in_the_skip(only_java: None):
    with pytest.raises(pytest.skip.Exception, match=r"^needs-jdk: javac, mvn not found"):
        require_java()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder, tools in (("home/bin", ["java"]), ("path", ["java", "mvn"])):
        (tmp_path / folder).mkdir(parents=True)
        for tool in tools:
            (tmp_path / folder / tool).touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    assert java_toolchain.find_tools.__wrapped__() == {
        "java": str(tmp_path / "home" / "bin" / "java"),
        "mvn": str(tmp_path / "path" / "mvn"),
    }


def test_workers_that_want_the_same_thing_make_it_once(tmp_path: Path):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.05)  # long enough for the others to arrive
        (folder / "file").write_text("whole")

    workers = [threading.Thread(target=made_once, args=(tmp_path / "thing", make)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(made) == 1
    assert (tmp_path / "thing" / "file").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thing", "thing.lock"]


def test_a_failed_start_leaves_nothing(tmp_path: Path):
    def make(folder: Path) -> None:
        (folder / "file").touch()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        made_once(tmp_path / "thing", make)
    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]


def test_unknown_versions_and_drivers_name_the_known_ones(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match=r"'5\.4\.0'.*4\.9\.8, 5\.5\.0"):
        jars("5.4.0")
    with pytest.raises(ValueError, match=r"'Nobody'.*ClientVersion"):
        classes("Nobody", "5.5.0")
