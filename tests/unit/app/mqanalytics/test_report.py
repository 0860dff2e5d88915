"""``mqanalytics report`` as it is called."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqanalytics.cli import app
from tests.support.mixed_store import BEGIN_MS, MixedStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report") / "store"
    MixedStore(root, 500).make()
    return root


@pytest.mark.long
def test_a_page_and_pictures_are_written_and_named(store: Path, tmp_path: Path):
    output = tmp_path / "out.html"
    done = CliRunner().invoke(app, ["report", f"b={store}", "-o", str(output), "--png", str(tmp_path / "png")])
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == str(output)
    assert sorted(lines[1:]) == sorted(map(str, (tmp_path / "png").iterdir()))
    assert "<b>500</b><span>messages</span>" in output.read_text()


def test_what_is_selected_stands_on_the_page(store: Path, tmp_path: Path):
    output = tmp_path / "out.html"
    arguments = ["report", str(store), "-o", str(output), "--topic", "orders", "--since", str(BEGIN_MS)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = output.read_text()
    assert "only messages stored since 2026-11-21 09:56:40 UTC, of orders" in text
    assert "Lag is shown for whole stores only." in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{tmp}/none"], 1, "does not exist; name a store directory"),
        (["{store}", "-o", "{tmp}/none/x.html"], 2, "--output {tmp}/none/x.html: there is no folder {tmp}/none"),
        (
            ["{store}", "--since", "20", "--until", "10"],
            2,
            "--since 1970-01-01T00:00:00.020Z (20 ms since 1970) is not before",
        ),
        (["{store}", "--since", "noon"], 2, "is not a time"),
        (["{store}", "--until", "22.11.2026"], 2, "is not a time"),
        ([], 2, ""),
    ],
)
def test_the_fault_is_printed_in_one_line(store: Path, tmp_path: Path, arguments: list[str], code: int, said: str):
    places = {"tmp": str(tmp_path), "store": str(store)}
    done = CliRunner().invoke(app, ["report", *(each.format(**places) for each in arguments)])
    assert (done.exit_code, done.stdout) == (code, "")
    assert said.format(**places) in done.stderr
    assert list(tmp_path.iterdir()) == []
