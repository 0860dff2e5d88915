"""Keys of terminals, and the snapshot that is printed without one."""

import pytest

from rocketbroker.app.mqadmin.top import keys_in, snapshot_report
from rocketbroker.app.mqadmin.top_data import BrokerFigures, GroupFigures, Snapshot, TopicFigures
from rocketbroker.app.terminal import Table


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[Bj", ["up", "down", "j"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["pageup", "pagedown", "home", "end"]),
        (b"\x1b[15~q", ["q"]),
        (b"\x1b[1;5Cq", ["q"]),
        (b"\r\n\x7f\x08", ["enter", "enter", "backspace", "backspace"]),
        ("é/".encode(), ["é", "/"]),
        (b"\xff", ["\ufffd"]),
        (b"\x1b[", []),
    ],
)
def test_keys_have_names_and_other_sequences_none(data: bytes, keys: list[str]):
    assert list(keys_in(data)) == keys


def test_a_snapshot_is_three_tables_and_names_what_did_not_answer():
    snapshot = Snapshot(
        0,
        [
            BrokerFigures("C", "a", 0, "h:1", "V5", 1.5, 2, 0.25, runtime={"a": "b"}),
            BrokerFigures("C", "b", 0, "h:2", problem="dead"),
        ],
        [GroupFigures("G", 5), GroupFigures("H", problem="frozen")],
        [TopicFigures("T", 7, 0.5)],
    )
    report = snapshot_report(snapshot)
    tables = [part for part in report.parts if isinstance(part, Table)]
    assert [row for table in tables for row in table.rows] == [
        ["C", "a", "0", "h:1", "1.50", "2.00", "0.2500", "V5"],
        ["C", "b", "0", "h:2", "-", "-", "-", "-"],
        ["G", "5", "0.00", "0", "0"],
        ["H", "-", "-", "-", "-"],
        ["T", "0.50", "7", "0"],
    ]
    assert report.failures == ["h:2: dead", "H: frozen"]
    assert report.data is snapshot
