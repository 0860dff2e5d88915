"""The checks of `bin/test`: format, lint, import contracts, types and docs on one core, tests in parallel.

    bin/test [--quick | --soak] [--slowest N] [--no-docs] [--no-skips] [--again] [PYTEST_ARGUMENT]...

--quick     run all checks, but no test that starts a JVM or Spark, or is marked long
--soak      also run the tests that take minutes each
--slowest N list the N tests that took longest
--no-docs   do not build the documentation
--no-skips  count each skip as a failure, except for soak tests: for a fully equipped machine
--again     run up to three failed unit, integration and interop tests once more, alone, unless they prove a promise:
            one that passes then is named as unsteady, with its first output above, and is no failure

A failed check shows its output. The summary lists all skips with their reasons, then counts checks and tests. Exit
status 0 means that nothing failed. Paths and options are passed on to pytest.
"""

import compileall
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
CHECK_LIMIT = 900  # seconds per check
TESTS_LIMIT = 3600  # seconds after which no further test is started
MEMORY = Path("/dev/shm")
MEMORY_WANTED = 4 << 30  # bytes; the tests of --quick use some 200 MB at a time
# Tests with processes or threads of their own, whose timing depends on what else runs.
TIMED = ("tests.unit.", "tests.integration.", "tests.interop.")
MOST_AGAIN = 3  # more are no coincidence
SOME_FAILED = 1  # exit status of pytest; any other one means that the run was cut short
SOAK = "soak: "  # prefix of skip reasons that do not depend on the machine

CHECKS: dict[str, list[str]] = {
    "format (ruff format)": [PYTHON, "-m", "ruff", "format", "--check", "."],
    "lint (ruff check)": [PYTHON, "-m", "ruff", "check", "--quiet", "."],
    "import contracts (lint-imports)": [str(Path(PYTHON).with_name("lint-imports"))],
    "types (mypy --strict src and bench, and tests)": [PYTHON, "-m", "mypy", "--strict", "src", "bench", "tests"],
    "docs (sphinx -W)": [PYTHON, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "{scratch}/html"],
}


@dataclass(slots=True)
class Outcome:
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    skips: Counter[str] = field(default_factory=Counter)
    unsteady: list[str] = field(default_factory=list)


def run_check(name: str, command: list[str], scratch: Path, outcome: Outcome) -> None:
    started = time.monotonic()
    command = [word.format(scratch=scratch) for word in command]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CHECK_LIMIT, check=False
        )
        failed, output = done.returncode != 0, done.stdout
    except subprocess.TimeoutExpired as expired:
        failed, output = True, f"did not finish within {expired.timeout:.0f} s"
    took = f"{time.monotonic() - started:.1f} s"
    if failed:
        outcome.failures.append(name)
        print(
            f"\nFAILED {name}, {took}\n{output.rstrip()}", flush=True
        )  # starts a new line: pytest may have printed dots
    else:
        outcome.passed += 1
        print(f"\nok     {name}, {took}", flush=True)


def run_checks(checks: dict[str, list[str]], scratch: Path, outcome: Outcome) -> None:
    for name, command in checks.items():
        run_check(name, command, scratch, outcome)


def has_room(folder: Path) -> bool:
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    free_memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(space.f_bavail * space.f_frsize, free_memory) >= MEMORY_WANTED


def run_tests(arguments: list[str], report: Path) -> int:
    """Run pytest on several workers and return its status; `tests/conftest.py` says which tests stay on one."""
    # Otherwise each worker would compile all of it in a fresh clone.
    for folder in ("src", "tests/support", "bench"):
        compileall.compile_dir(folder, quiet=2, workers=2)
    # A worker waits a third of its time, for servers, clients and the disk, so that three keep two cores busy.
    workers = "3"
    command = [PYTHON, "-m", "pytest", "-q", "-n", workers, "--dist", "loadgroup", f"--junit-xml={report}"]
    command += ["--no-loadscope-reorder"]  # reordering puts files with few tests last, however long they take
    command += [f"--session-timeout={TESTS_LIMIT}", *arguments]
    if "--quick" not in arguments or not has_room(MEMORY):
        return subprocess.run(command, check=False).returncode
    # These tests wait for the disk half of the time, and their stores are small enough for memory.
    with tempfile.TemporaryDirectory(prefix="rocketbroker-test-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        return subprocess.run([*command, f"--basetemp={folder}/tests"], check=False).returncode


def read_cases(report: Path) -> list[ET.Element]:
    try:
        return list(ET.parse(report).getroot().iter("testcase"))
    except (FileNotFoundError, ET.ParseError):  # pytest was killed before it had written the report
        return []


def read_report(report: Path, status: int) -> Outcome:
    """Count the results in pytest's JUnit file; a failed run without a failed test counts as one failure."""
    outcome = Outcome()
    for case in read_cases(report):
        name = name_of(case)
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failures.append(name)
        elif skipped is not None:
            outcome.skips[skipped.get("message") or "no reason given"] += 1
        else:
            outcome.passed += 1
    if status != 0 and not outcome.failures:
        outcome.failures.append(f"pytest ended with exit status {status}")
    return outcome


def run_again(tests: Outcome, report: Path) -> None:
    """Run failed tests once more, alone, if they are few and may be late; those that pass become unsteady ones.

    A promise has no second try: a message that is lost once in twenty runs is the fault that its test looks for.
    """
    failed = tests.failures
    if not 0 < len(failed) <= MOST_AGAIN or not all(name.startswith(TIMED) for name in failed):
        return
    print(f"\n{len(failed)} failed; once more, alone:", flush=True)
    paths = [f"{module.replace('.', '/')}.py::{name}" for module, name in (each.split("::", 1) for each in failed)]
    command = [PYTHON, "-m", "pytest", "-q", f"--junit-xml={report}", f"--session-timeout={CHECK_LIMIT}"]
    command += ["-m", "not proves", *paths]
    again = read_report(report, subprocess.run(command, check=False).returncode)
    if again.passed + len(again.failures) == len(failed) and set(again.failures) <= set(failed):
        tests.failures = again.failures
        tests.unsteady = [name for name in failed if name not in again.failures]
        tests.passed += again.passed


def slowest(report: Path, count: int) -> list[str]:
    """Return a line for each of the slowest tests; the seconds include fixtures."""
    cases = sorted(read_cases(report), key=lambda case: -float(case.get("time", 0)))
    return [f"{float(case.get('time', 0)):7.1f} s  {name_of(case)}" for case in cases[:count]]


def name_of(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name', '').rsplit('@', 1)[0]}"


def summarise(checks: Outcome, tests: Outcome) -> int:
    failures = checks.failures + tests.failures
    skips = checks.skips + tests.skips
    print()
    for name in failures:
        print(f"FAILED {name}")
    for name in tests.unsteady:
        print(f"UNSTEADY {name}: it failed among the others and passed alone")
    for reason, count in sorted(skips.items()):
        print(f"skipped {count}: {reason}")
    if not skips:
        print("nothing was skipped")
    print(f"{checks.passed + tests.passed} passed, {len(failures)} failed, {skips.total()} skipped", flush=True)
    return 1 if failures else 0


def refuse_skips(outcome: Outcome) -> None:
    """Turn each skip that a fully equipped machine does not need into a failure."""
    for reason in [reason for reason in outcome.skips if not reason.startswith(SOAK)]:
        outcome.failures.append(f"{outcome.skips.pop(reason)} skipped: {reason}")


def main(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(__doc__)
        return 0
    os.chdir(ROOT)
    checks = dict(CHECKS)
    outcome = Outcome()
    if "--no-docs" in arguments:
        arguments = [word for word in arguments if word != "--no-docs"]
        del checks["docs (sphinx -W)"]
        outcome.skips["docs: --no-docs was given"] += 1
    no_skips = "--no-skips" in arguments
    again = "--again" in arguments
    arguments = [word for word in arguments if word not in {"--no-skips", "--again"}]
    shown = 0
    if "--slowest" in arguments:
        at = arguments.index("--slowest")
        shown = int(arguments[at + 1])
        del arguments[at : at + 2]
    with tempfile.TemporaryDirectory(prefix="rocketbroker-test-") as folder:
        scratch = Path(folder)
        static = threading.Thread(target=run_checks, args=(checks, scratch, outcome), daemon=True)
        static.start()
        status = run_tests(arguments, scratch / "tests.xml")
        static.join()
        tests = read_report(scratch / "tests.xml", status)
        if again and status == SOME_FAILED:
            run_again(tests, scratch / "again.xml")
        for line in slowest(scratch / "tests.xml", shown):
            print(line)
        if no_skips:
            refuse_skips(tests)
        return summarise(outcome, tests)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted: unfinished checks and tests are not reported")
