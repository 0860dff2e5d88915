"""bin/_checks.py counts what pytest and the checks did, and its status is true."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
REPORT = """\
<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
  <testcase classname="tests.a" name="good"/>
  <testcase classname="tests.a" name="bad@java"><failure message="no">text</failure></testcase>
  <testcase classname="tests.a" name="broken"><error message="set-up">text</error></testcase>
  <testcase classname="tests.b" name="one"><skipped type="pytest.skip" message="needs-jdk: javac not found"/></testcase>
  <testcase classname="tests.b" name="two"><skipped type="pytest.skip" message="needs-jdk: javac not found"/></testcase>
  <testcase classname="tests.b" name="three"><skipped type="pytest.skip" message="soak"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rocketbroker_checks", ROOT / "bin" / "_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_report_is_counted(checks: ModuleType, tmp_path: Path):
    (tmp_path / "tests.xml").write_text(REPORT)

    outcome = checks.read_report(tmp_path / "tests.xml", 1)

    assert outcome.passed == 1
    assert outcome.failures == ["tests.a::bad", "tests.a::broken"]
    assert outcome.skips == {"needs-jdk: javac not found": 2, "soak": 1}


def test_the_slowest_tests_are_listed(checks: ModuleType, tmp_path: Path):
    text = REPORT.replace('name="good"', 'name="good" time="1.25"').replace('name="one"', 'name="one@java" time="20"')
    (tmp_path / "tests.xml").write_text(text)

    assert checks.slowest(tmp_path / "tests.xml", 2) == ["   20.0 s  tests.b::one", "    1.2 s  tests.a::good"]


@pytest.mark.parametrize("text", [None, "<testsuites/>", "<testsui"])
def test_a_run_that_broke_off_is_a_failure(checks: ModuleType, tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "tests.xml").write_text(text)

    outcome = checks.read_report(tmp_path / "tests.xml", 3)

    assert (outcome.passed, outcome.failures) == (0, ["pytest ended with exit status 3"])


def test_the_last_line_counts_checks_and_tests(checks: ModuleType, capsys: pytest.CaptureFixture[str]):
    done = checks.Outcome(passed=5)
    tests = checks.Outcome(passed=10)
    tests.skips["soak"] += 2

    assert checks.summarise(done, tests) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["skipped 2: soak", "15 passed, 0 failed, 2 skipped"]


def test_without_skips_only_soak_tests_may_be_left_out(checks: ModuleType):
    tests = checks.Outcome(passed=3)
    tests.skips.update({"needs-namespaces: refused": 4, "soak: takes minutes, runs with --soak": 2})

    checks.refuse_skips(tests)

    assert tests.failures == ["4 skipped: needs-namespaces: refused"]
    assert tests.skips == {"soak: takes minutes, runs with --soak": 2}


def test_one_failure_makes_the_status_one(checks: ModuleType, capsys: pytest.CaptureFixture[str]):
    assert checks.summarise(checks.Outcome(failures=["lint"]), checks.Outcome(passed=1)) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "FAILED lint",
        "nothing was skipped",
        "1 passed, 1 failed, 0 skipped",
    ]


UNSTEADY = """\
import pytest

def test_late():
    pass

@pytest.mark.proves("a section", "a promise")
def test_promise():
    pass

def test_wrong():
    assert False
"""


def failing(checks: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Any:
    """Return the outcome of a run in which tests of a file failed; they can be run again."""
    (folder / "tests" / "interop").mkdir(parents=True)
    (folder / "tests" / "interop" / "test_x.py").write_text(UNSTEADY)
    monkeypatch.chdir(folder)
    return checks.Outcome(passed=1, failures=[f"tests.interop.test_x::{name}" for name in names])


def test_a_test_that_passes_alone_is_named_and_no_failure(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tests = failing(checks, tmp_path, monkeypatch, "test_late", "test_wrong")
    checks.run_again(tests, tmp_path / "again.xml")

    assert (tests.passed, tests.failures) == (2, ["tests.interop.test_x::test_wrong"])
    assert checks.summarise(checks.Outcome(), tests) == 1
    line = "UNSTEADY tests.interop.test_x::test_late: it failed among the others and passed alone"
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["test_late"], ["tests.property.test_x::test_late"]),
        (["test_late"], ["pytest ended with exit status 3"]),
        (["test_late"] * 4, []),
        (["test_unknown"], []),
        (["test_promise"], []),
    ],
    ids=["a property", "no test", "too many", "unknown", "a promise"],
)
def test_other_failures_remain(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], more: list[str]
):
    tests = failing(checks, tmp_path, monkeypatch, *names)
    tests.failures += more
    before = list(tests.failures)
    checks.run_again(tests, tmp_path / "again.xml")

    assert (tests.passed, tests.failures, tests.unsteady) == (1, before, [])


def test_a_check_that_fails_shows_its_output(checks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    outcome = checks.Outcome()
    program = "import sys; print('what is wrong with', sys.argv[1]); sys.exit(len(sys.argv) - 2)"

    checks.run_check("good", [sys.executable, "-c", program, "nothing"], tmp_path, outcome)
    checks.run_check("bad", [sys.executable, "-c", program, "{scratch}", "more"], tmp_path, outcome)

    assert (outcome.passed, outcome.failures) == (1, ["bad"])
    printed = capsys.readouterr().out
    assert f"what is wrong with {tmp_path}" in printed
    assert "what is wrong with nothing" not in printed
