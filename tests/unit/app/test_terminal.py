"""Layout of reports."""

import ast
import json
import re
from pathlib import Path

import pytest

from rocketbroker.app.mqadmin.clusters import BrokerRow, base_table
from rocketbroker.app.mqadmin.command import Report, print_error, print_report
from rocketbroker.app.mqstore import options
from rocketbroker.app.terminal import (
    Column,
    Table,
    escaped,
    json_text,
    prose,
    say,
    say_json,
)

APP = Path(options.__file__).parents[1]
# Clear the screen by 7-bit and by 8-bit controls, rename the window, ring, delete, turn the text around.
BAD = "a\x1b[2J\x9b2J\x1b]0;x\x07\x7f\u202e\u061cb"
SHOWN = r"a\x1b[2J\x9b2J\x1b]0;x\x07\x7f\u202e\u061cb"


def controls(text: str) -> set[str]:
    return {char for char in text if not char.isprintable()} - {"\n"}


def test_a_text_is_escaped_and_others_stay():
    assert escaped(BAD) == SHOWN
    assert escaped("two\nlines") == r"two\nlines"
    assert escaped("two\n\t\x1blines\n", "\n\t") == "two\n\t\\x1blines\n"
    assert escaped("plain, \u00e4 \u4e2d \U0001f600") == "plain, \u00e4 \u4e2d \U0001f600"


@pytest.mark.parametrize("err", [False, True])
def test_what_is_said_keeps_its_lines(err, capsys):
    say("one", BAD + "\nthree", err=err)
    assert (capsys.readouterr().err if err else capsys.readouterr().out) == f"one {SHOWN}\nthree\n"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_the_same_value_without_controls(indent, capsys):
    say_json({BAD: [BAD]}, indent)
    text = capsys.readouterr().out
    assert json.loads(text) == json.loads(json_text({BAD: [BAD]})) == {BAD: [BAD]}
    assert not controls(text)


ADVICE = (
    "keep less, which removes all older ones: mqadmin updateBrokerConfig -b h:1 -k a -v 36; then: mqadmin x -n 'h;i'"
)


def test_sentences_are_folded_on_a_terminal_and_commands_are_not(monkeypatch: pytest.MonkeyPatch):
    assert prose(ADVICE, "  ") == f"  {ADVICE}"
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert prose(ADVICE, "  ").splitlines() == [
        "  keep less, which",
        "  removes all older",
        "  ones:",
        "  mqadmin updateBrokerConfig -b h:1 -k a -v 36",
        "  then:",
        "  mqadmin x -n 'h;i'",
    ]
    assert prose("a client-id-that-is-longer-than-a-line of h:1").splitlines() == [
        "a",
        "client-id-that-is-longer-than-a-line",
        "of h:1",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_reports_and_rows_show_no_control(as_json, capsys):
    table = Table([Column("Client"), Column("Tags", right=True)], [[BAD, "1"]])
    print_report(Report({"id": BAD}, [BAD, table], [BAD]), as_json=as_json)
    options.print_rows([{"keys": BAD, "body": [BAD]}], as_json=as_json)
    out, err = capsys.readouterr()
    assert not controls(out + err)
    assert "2J" in out


@pytest.mark.parametrize("room", ["mqadmin", "mqstore", "mqanalytics"])
def test_commands_print_by_this_file_alone(room):
    for path in (APP / room).glob("*.py"):
        assert not {"print", "echo", "secho"} & called(path), path


def called(path: Path) -> set[str]:
    """Names of the functions that a file calls."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


TABLE = Table([Column("#Name"), Column("#Number", True)], [["a" * 300, "1"], ["[red]b", "22"]])


def test_a_table_in_a_pipe_is_one_line_a_row(capsys: pytest.CaptureFixture[str]):
    print_report(Report({}, ["first", TABLE, "last"]), as_json=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["first", f"#Name{'':297}#Number", f"{'a' * 300}{'':8}1", f"[red]b{'':301}22", "last"]


def test_a_wide_character_in_a_pipe_takes_two_columns(capsys: pytest.CaptureFixture[str]):
    print_report(Report({}, [Table([Column("A"), Column("B")], [["日本", "x"], ["abcd", "y"]])]), as_json=False)
    assert capsys.readouterr().out == "A     B\n日本  x\nabcd  y\n"


def test_json_is_one_value_without_the_text(capsys: pytest.CaptureFixture[str]):
    print_report(Report({"b": 1, "a": ["é"]}, ["text", TABLE]), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"b": 1, "a": ["é"]}


def test_a_failure_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    print_report(Report({}, [], ["host: broken"]), as_json=False)
    print_error("CODE: 17  DESC: no route\nSee the page")
    assert capsys.readouterr() == ("", "mqadmin: host: broken\nmqadmin: CODE: 17 DESC: no route See the page\n")


def be_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stdout a terminal of 80 columns without colours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_table_that_cannot_be_read_at_80_columns_is_a_line_for_each_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    be_terminal(monkeypatch)
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


def test_a_table_that_fits_80_columns_folds_texts_and_no_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    be_terminal(monkeypatch)
    number = "1" * 19
    columns = [Column("#Name of it"), *(Column(f"#Number {at}", True) for at in range(3))]
    print_report(Report({}, [Table(columns, [["n" * 40, number, number, number]])]), as_json=False)
    out = capsys.readouterr().out
    assert out.count(number) == 3
    assert "".join(re.findall("n{2,}", out)) == "n" * 40
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", out).splitlines())) <= 80
