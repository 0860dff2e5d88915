"""The shape of the project, where no other tool looks: file sizes, contracts without holes, pins without addresses."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "src" / "rocketbroker"
MOST_LINES = 700
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
SDKS = ROOT / "tests" / "interop" / "sdk"  # each is installed by itself, whatever the others pin
# Rooms whose imports are narrower than the layers say, so that each needs a forbidden contract of its own.
NARROWED = {"audit", "auth", "codec", "store", "client", "namesrv", "processor", "proxy", "analytics", "testing"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def contracts(project: dict[str, Any]) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return held


def test_no_source_file_is_too_long_to_read():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES.rglob("*.py")}

    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_import_is_exempt_from_the_contracts(contracts: list[dict[str, Any]]):
    assert [contract["name"] for contract in contracts if contract.get("ignore_imports")] == []


def test_each_narrowed_room_has_a_contract(contracts: list[dict[str, Any]]):
    rooms = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    forbidden = {
        module.removeprefix("rocketbroker.")
        for contract in contracts
        if contract["type"] == "forbidden"
        for module in contract["source_modules"]
    }

    assert (rooms & NARROWED) - forbidden == set()


def test_codec_is_kept_from_all_of_common_but_errors(contracts: list[dict[str, Any]]):
    common = {path.stem for path in (SOURCES / "common").iterdir() if path.stem.isidentifier()} - {
        "__init__",
        "__pycache__",
    }
    forbidden = {
        module.removeprefix("rocketbroker.common.")
        for contract in contracts
        if contract["type"] == "forbidden" and "rocketbroker.codec" in contract["source_modules"]
        for module in contract["forbidden_modules"]
        if module.startswith("rocketbroker.common.")
    }

    assert forbidden == common - {"errors"}, "list each module of common in the contract of codec (pyproject.toml)"


def test_the_package_and_its_metadata_name_one_version(project: dict[str, Any]):
    named = re.search(r'^__version__ = "(.+)"$', (SOURCES / "__init__.py").read_text(), re.MULTILINE)

    assert named
    assert named[1] == project["project"]["version"]


def test_every_console_script_has_its_command_in_bin(project: dict[str, Any]):
    for name, target in project["project"]["scripts"].items():
        module, _, function = target.partition(":")
        assert re.search(rf"\b{name} {re.escape(module)} ", (ROOT / "bin" / name).read_text()), name
        assert function == "main"


@pytest.mark.parametrize("path", [*REQUIREMENTS, SDKS / "python" / "requirements.txt"], ids=lambda path: path.name)
def test_requirement_files_hold_hashes_and_no_address(path: Path):
    text = path.read_text()
    logical = re.sub(r"\\\n", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    pins = [line for line in logical if line.strip()]

    assert "://" not in text
    assert pins
    for pin in pins:
        assert re.match(r"[A-Za-z0-9_.-]+==[^\s;]+( ;[^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+$", pin), pin[:120]


def test_the_package_lock_of_node_holds_hashes_and_no_address():
    text = (SDKS / "node" / "package-lock.json").read_text()
    packages = {name: package for name, package in json.loads(text)["packages"].items() if name}

    assert "://" not in text
    assert packages
    assert [name for name, package in packages.items() if not package.get("integrity", "").startswith("sha512-")] == []


def test_requirement_files_agree_with_each_other():
    pinned: dict[str, set[str]] = {}
    # What builds the image is never installed beside the others.
    for path in (each for each in REQUIREMENTS if each.stem != "image"):
        for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE):
            pinned.setdefault(name, set()).add(version)

    # A package may be pinned twice for different Pythons, but then the widest file holds both.
    widest = set(
        re.findall(r"^([A-Za-z0-9_.-]+==[^\s;]+)", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    )
    assert {f"{name}=={version}" for name, versions in pinned.items() for version in versions} - widest == set()


@pytest.mark.parametrize("level", ["core", "analytics", "dev"])
def test_every_declared_dependency_is_pinned(project: dict[str, Any], level: str):
    declared = list(project["project"]["dependencies"])
    if level != "core":
        declared += project["project"]["optional-dependencies"]["analytics"]
    if level == "dev":
        declared += project["project"]["optional-dependencies"]["connect"]
        declared += project["dependency-groups"]["dev"]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0] for line in declared}
    pinned = set(
        re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements" / f"{level}.txt").read_text(), re.MULTILINE)
    )

    assert names - pinned == set()


def test_every_link_between_markdown_files_resolves():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]

    assert broken == []
