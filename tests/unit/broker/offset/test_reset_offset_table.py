import gc

from rocketbroker.broker.offset.reset_offset_table import ResetOffsetTable
from tests.support.fakes import FakeConnection


def test_redirected_connections_that_closed_are_forgotten():
    table = ResetOffsetTable()
    table.assign("T@g", 0, 7)
    last = FakeConnection()
    for _ in range(1_000):
        assert table.redirect("T@g", 0, FakeConnection()) == 7
    assert table.redirect("T@g", 0, last) == 7
    gc.collect()
    assert len(table._resets["T@g"][0].redirected) == 1
    assert table.redirect("T@g", 0, last) is None
    assert not table
