"""Request codes, the methods that answer them, their tests and their page: none lacks one of the others."""

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


@pytest.mark.parametrize("title", ROUTES)
def test_each_routed_code_has_its_row_and_no_other_has_one(title: str):
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    rows = {int(code): name for code, name in re.findall(r"^\| (\d+) \| ([A-Z0-9_]+) \|", section, re.MULTILINE)}

    assert rows == {code: RequestCode(code).name for code in ROUTES[title]}, HOW


@pytest.mark.parametrize("row", ROUTED, ids=lambda row: f"{row.code}-{row.name}")
def test_each_routed_code_has_a_test_at_the_same_place(row: Row):
    text = (TESTS / row.file.with_name(f"test_{row.file.name}")).read_text()

    # It calls the method itself, or asks a server by the code.
    assert f".{row.method}" in text or row.name in text or f"({row.code})" in text
    assert re.search(r"^(async )?def test_", text, re.MULTILINE)


@pytest.mark.parametrize("row", ROUTED, ids=lambda row: f"{row.code}-{row.name}")
def test_a_method_has_the_name_of_its_code_or_of_another_that_it_answers(row: Row):
    """One search for the code or the name finds the method that answers it."""
    answered = {other.name.lower() for other in ROUTED if (other.file, other.method) == (row.file, row.method)}

    assert row.method in answered
    assert f"RequestCode.{row.name}" in (PROCESSORS / row.file).read_text()


def test_each_family_is_routed():
    """A method that answers a code which no server routes is one that nobody can reach."""
    text = "".join(path.read_text() for path in PROCESSORS.rglob("*.py") if path.name != "request_family.py")
    answered = set(re.findall(r"@answers\(\s*(?:RequestCode|Code)\.([A-Z0-9_]+)", text))

    assert answered <= {row.name for row in ROUTED}


def codes(title: str, audience: Audience) -> set[int]:
    return {code for code, route in ROUTES[title].items() if route.audience is audience}


def test_strangers_reach_only_the_requests_of_clients():
    """A new code is closed until it is listed here: official clients must need it in ordinary work."""
    sends, pulls = {10, 310, 320, 324, 325, 370}, {11, 361}
    offsets, messages = {14, 15, 29, 30, 31, 32}, {12, 33, 36, 37}
    membership = {34, 35, 38, 41, 42, 46, 400}
    pops = {200050, 200051, 200052, 200053, 200054, 200055, 200151}
    assert codes("Broker", Audience.CLIENT) == sends | pulls | pops | offsets | messages | membership
    assert codes("Name server", Audience.CLIENT) == {105, 106}


def test_brokers_reach_registration_and_slave_requests():
    assert codes("Name server", Audience.BROKER) == {103, 104, 217, 322, 901, 904}
    assert codes("Broker", Audience.BROKER) == {21, 28, 43, 45, 60, 61, 201, 351, 352, 402, 905, 906}
