"""How reports look."""

import json

import pytest

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
