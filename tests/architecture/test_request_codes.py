"""Tables, processor files, their tests and the page of request codes belong together: none lacks one of the others."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from docs._ext import request_codes
from docs._ext.request_codes import Row
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.request_code import RequestCode

ROOT = Path(__file__).resolve().parent.parent.parent
PROCESSORS = ROOT / "src" / "rocketbroker" / "processor"
TESTS = ROOT / "tests" / "unit" / "processor"
PAGE = ROOT / "docs" / "reference" / "request-codes.md"
HOW = "run: bin/manual"
ROUTES = {title: routes for title, _, routes in request_codes.sections()}
ROUTED = [row for routes in ROUTES.values() for row in request_codes.rows(routes)]
FILES = sorted({row.file for row in ROUTED})


@pytest.mark.parametrize("title", ROUTES)
def test_each_routed_code_has_its_row_and_no_other_has_one(title: str):
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    rows = {int(code): name for code, name in re.findall(r"^\| (\d+) \| ([A-Z0-9_]+) \|", section, re.MULTILINE)}

    assert rows == {code: RequestCode(code).name for code in ROUTES[title]}, HOW


@pytest.mark.parametrize("row", ROUTED, ids=lambda row: f"{row.code}-{row.name}")
def test_each_routed_code_has_its_test_file(row: Row):
    text = (TESTS / row.file.with_name(f"test_{row.file.name}")).read_text()

    # It calls the processor itself, or asks a table by the code.
    assert f"from {module_of(row.file)} import" in text or row.name in text
    assert re.search(r"^(async )?def test_", text, re.MULTILINE)


def test_each_processor_is_routed():
    """A class with the name of a processor that no table has is a code that nobody can reach."""
    files = [path.relative_to(PROCESSORS) for path in PROCESSORS.rglob("*.py") if path.name != "__init__.py"]

    assert {file for file in files if has_processor(file)} == set(FILES)


def module_of(file: Path) -> str:
    return ".".join(("rocketbroker", "processor", *file.with_suffix("").parts))


def has_processor(file: Path) -> bool:
    module = importlib.import_module(module_of(file))
    classes = inspect.getmembers(module, inspect.isclass)
    return any(name.endswith("Processor") and each.__module__ == module.__name__ for name, each in classes)


def codes(title: str, audience: Audience) -> set[int]:
    return {code for code, route in ROUTES[title].items() if route.audience is audience}


def test_strangers_reach_only_the_requests_of_clients():
    """A new code is closed until it is listed here: official clients must need it in ordinary work."""
    sends, pulls = {10, 310, 320, 324, 325, 370}, {11, 361}
    offsets, messages = {14, 15, 29, 30, 31, 32}, {12, 33, 36, 37}
    membership = {34, 35, 38, 41, 42, 46}
    assert codes("Broker", Audience.CLIENT) == sends | pulls | offsets | messages | membership
    assert codes("Name server", Audience.CLIENT) == {105, 106}


def test_brokers_reach_registration_and_slave_requests():
    assert codes("Name server", Audience.BROKER) == {103, 104, 217, 322, 901, 904}
    assert codes("Broker", Audience.BROKER) == {21, 28, 43, 45, 60, 61, 201, 402, 905, 906}
