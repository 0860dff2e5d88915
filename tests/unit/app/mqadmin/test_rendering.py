"""How reports look."""

import json
import re

import pytest

from rocketbroker.app.mqadmin.cluster_list import BrokerRow, base_table
from rocketbroker.app.mqadmin.rendering import print_error, print_report
from rocketbroker.app.mqadmin.report import Column, Report, Table

TABLE = Table([Column("#Name"), Column("#Number", True)], [["a" * 300, "1"], ["[red]b", "22"]])


def test_a_table_in_a_pipe_is_one_line_a_row(capsys: pytest.CaptureFixture[str]):
    print_report(Report({}, ["first", TABLE, "last"]), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["first", f"#Name{'':297}#Number", f"{'a' * 300}{'':8}1", f"[red]b{'':301}22", "last"]


def test_json_is_one_value_without_the_text(capsys: pytest.CaptureFixture[str]):
    print_report(Report({"b": 1, "a": ["é"]}, ["text", TABLE]), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"b": 1, "a": ["é"]}


def test_a_failure_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    print_report(Report({}, [], ["host: broken"]), as_json=False)
    print_error("CODE: 17  DESC: no route\nSee the page")
    assert capsys.readouterr() == ("", "mqadmin: host: broken\nmqadmin: CODE: 17 DESC: no route See the page\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("terminal")
def test_a_table_that_cannot_be_read_at_80_columns_is_a_line_for_each_cell(capsys: pytest.CaptureFixture[str]):
    rows = [BrokerRow("DefaultCluster", f"broker-{name}", 0, "127.0.0.1:10911", {}) for name in "ab"]
    print_report(Report({}, [base_table(rows, 0)]), as_json=False)
    first, second = capsys.readouterr().out.split("\n\n")[:2]
    assert first.splitlines()[:4] == [
        "#Cluster Name     DefaultCluster",
        "#Broker Name      broker-a",
        "#BID              0",
        "#Addr             127.0.0.1:10911",
    ]
    assert second.splitlines()[1].split() == ["#Broker", "Name", "broker-b"]


@pytest.mark.usefixtures("terminal")
def test_a_table_that_fits_80_columns_folds_texts_and_no_numbers(capsys: pytest.CaptureFixture[str]):
    number = "1" * 19
    columns = [Column("#Name of it"), *(Column(f"#Number {at}", True) for at in range(3))]
    print_report(Report({}, [Table(columns, [["n" * 40, number, number, number]])]), as_json=False)
    out = capsys.readouterr().out
    assert out.count(number) == 3
    assert "".join(re.findall("n{2,}", out)) == "n" * 40
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", out).splitlines())) <= 80
