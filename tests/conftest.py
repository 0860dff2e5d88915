"""Fixtures and rules for all tests: what needs Java or minutes is skipped with a reason that bin/test counts."""

import gc
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rocketbroker.transport import frame_reader
from tests.support.java import Java
from tests.support.java_process import JavaServer
from tests.support.java_toolchain import require_java
from tests.support.other_machine import OtherMachine
from tests.support.shared_session import SharedSession

ROOT = Path(__file__).resolve().parents[1]
# A test that starts a Spark session of its own, a JVM, or servers of ours takes as long as so many others.
SESSION_WEIGHT, JVM_WEIGHT, SERVER_WEIGHT = 2000, 100, 10
SERVER_TESTS = {ROOT / "tests" / name for name in ("integration", "interop")}
FAILED = pytest.StashKey[bool]()
# Examples of a property that sets no number itself. Without --soak they are the same each time: many add little.
QUICK_EXAMPLES, EXAMPLES, SOAK_EXAMPLES = 10, 30, 200
FETCH_LIMIT = 400  # seconds a test may take that may be the first to fetch the jars by Maven

# Programs that tests start find the package as the tests do.
os.environ["PYTHONPATH"] = str(ROOT / "src")

# A shell that starts this in the background has it ignore interrupts, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_hurry() -> Iterator[None]:
    """Let no slow machine divide a read event in two: tests that are about that set the time themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_reader, "_TURN_S", 60.0)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="leave out the tests that start a JVM or Spark, or are marked long"
    )
    parser.addoption("--soak", action="store_true", help="also run the tests marked soak, which take minutes")
    parser.addoption(
        "--from-other-address", action="store_true", help="run official clients with an address of another machine"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run the same examples of Hypothesis each time, fewer with --quick, new ones with --soak; allow for slowness."""
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    soak = config.getoption("--soak")
    examples = QUICK_EXAMPLES if config.getoption("--quick") else SOAK_EXAMPLES if soak else EXAMPLES
    settings.register_profile(
        "ours", deadline=None, derandomize=not soak, max_examples=examples, suppress_health_check=checks
    )
    settings.load_profile("ours")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files: what one has compiled, the others need not compile in a fresh clone.

    The first goes through each folder forward, the second backward, and others from the middle.
    ``pytest_collection_modifyitems`` puts their tests in one order again.
    """
    report = yield
    worker, children = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), report.result
    if worker != "gw0" and isinstance(collector, pytest.Directory):
        middle = len(children) // 2
        report.result = children[::-1] if worker == "gw1" else children[middle:] + children[:middle]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, a third of that time, nor ever among what stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        long = {item for item in items if _starts_a_jvm(item) or item.get_closest_marker("long")}
        config.hook.pytest_deselected(items=[*long])
        items[:] = [item for item in items if item not in long]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="soak: takes minutes, runs with --soak"))
        if item.get_closest_marker("java") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(FETCH_LIMIT))

    _longest_first(items)


def _starts_a_jvm(item: pytest.Item) -> bool:
    marked = item.get_closest_marker("java") or item.get_closest_marker("spark")
    return marked is not None or "shared_session" in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str:
    """Tests of one group stay on one worker: those of a file share servers, others a Spark session or syntax trees."""
    if {"spark", "shared_session"} <= set(getattr(item, "fixturenames", ())):
        return "spark"
    return "architecture" if item.path.parent.name == "architecture" else item.path.stem


def _longest_first(items: list[pytest.Item]) -> None:
    """Sort the groups, and files within: a long group that is begun last would hold up the end by itself."""
    weights: Counter[str] = Counter()
    for item in items:
        if not item.get_closest_marker("skip"):
            weights[_group(item)] += _weight(item)
    items.sort(key=lambda item: (-weights[group := _group(item)], group, item.path))


def _weight(item: pytest.Item) -> int:
    if item.get_closest_marker("spark") and not {"spark", "shared_session"} & set(getattr(item, "fixturenames", ())):
        return SESSION_WEIGHT
    if _starts_a_jvm(item) or item.get_closest_marker("long"):
        return JVM_WEIGHT
    return SERVER_WEIGHT if item.path.parent in SERVER_TESTS else 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("java"):
        require_java()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Collect what a failed test left open: its warnings would fail the test during which it is collected."""
    yield
    if item.stash.get(FAILED, False):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = hook


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Takes back what a program that ran within a test set up: a later one would log more, to a closed file."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def shared_session() -> Iterator[SharedSession]:
    """The Spark session that tests of this process share; starts when it is wanted first."""
    shared = SharedSession()
    yield shared
    shared.close()


@pytest.fixture
def no_session(shared_session: SharedSession) -> None:
    """For tests that start a session of their own: a session that runs would be handed out to them."""
    shared_session.close()


@pytest.fixture(scope="session")
def other_machine() -> Iterator[OtherMachine]:
    """A network namespace that peers with another address run in."""
    with OtherMachine() as other:
        yield other


@pytest.fixture(scope="session")
def clients_machine(request: pytest.FixtureRequest) -> OtherMachine | None:
    """Machine of the official clients, from which servers have to be reached; None for the servers' own."""
    if not request.config.getoption("--from-other-address"):
        return None
    machine: OtherMachine = request.getfixturevalue("other_machine")
    return machine


@pytest.fixture
def java(tmp_path: Path, clients_machine: OtherMachine | None) -> Iterator[Java]:
    """Runs Java for one test (tests/support/java.py says how); whatever it started ends with the test."""
    require_java()
    home = tmp_path / "java"
    home.mkdir()
    runner = Java(home, clients_machine)
    yield runner
    runner.close()


@pytest.fixture
def java_namesrv(java: Java) -> JavaServer:
    """Apache's name server 5.5.0, ready."""
    return java.namesrv()


@pytest.fixture
def java_broker(java: Java, java_namesrv: JavaServer) -> JavaServer:
    """Apache's broker 5.5.0, ready and registered at `java_namesrv`."""
    return java.broker(namesrv=java_namesrv.address)
