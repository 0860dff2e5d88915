import ast
import json
from pathlib import Path

import pytest

from rocketbroker.app.mqadmin.rendering import print_report
from rocketbroker.app.mqadmin.report import Column, Report, Table
from rocketbroker.app.mqstore import rows
from rocketbroker.app.terminal import escaped, json_text, say, say_json

APP = Path(rows.__file__).parents[1]
# Clear the screen by 7-bit and by 8-bit controls, rename the window, ring, delete, turn the text around.
BAD = "a\x1b[2J\x9b2J\x1b]0;x\x07\x7f\u202eb"
SHOWN = r"a\x1b[2J\x9b2J\x1b]0;x\x07\x7f\u202eb"


def controls(text: str) -> set[str]:
    return {char for char in text if not char.isprintable()} - {"\n"}


def test_a_text_is_escaped_and_others_stay():
    assert escaped(BAD) == SHOWN
    assert escaped("two\nlines") == r"two\nlines"
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


@pytest.mark.parametrize("as_json", [False, True])
def test_reports_and_rows_show_no_control(as_json, capsys):
    table = Table([Column("Client"), Column("Tags", right=True)], [[BAD, "1"]])
    print_report(Report({"id": BAD}, [BAD, table], [BAD]), as_json=as_json)
    rows.print_rows([{"keys": BAD, "body": [BAD]}], as_json=as_json)
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
