"""Tests of the shortened brokers: one stores nothing, one stores as many messages as it answers."""

from pathlib import Path

import pytest

from bench.bounds import shorten, sides, table
from bench.send_path import DroppingTransport, send_frame, send_path


@pytest.mark.parametrize(("bound", "stored"), [("answers", 0), ("stores", 320)])
async def test_a_shortened_broker_answers_each_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, stored: int
):
    shorten(bound, monkeypatch.setattr)
    async with send_path(tmp_path) as path:
        connection = path.connection
        read(connection, 1, 32)  # learns the template
        taken, before = transport_of(connection).taken, path.store.appender.put_count
        for number in range(10):
            read(connection, 100 + 32 * number, 32)

        assert path.store.appender.put_count - before == stored
        assert transport_of(connection).taken - taken > 320 * 100


def read(connection, first: int, count: int) -> None:
    data = b"".join(send_frame(number, b"body") for number in range(first, first + count))
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def transport_of(connection) -> DroppingTransport:
    found = connection._writer.transport
    assert isinstance(found, DroppingTransport)
    return found


def test_the_table_has_medians():
    figures = {("sync64", "whole"): [(1000.0, 10.0), (3000.0, 12.0), (2000.0, 11.0)]}

    assert list(table(figures))[2:] == ["| sync64 | whole | 2,000 | 11.00 |"]
    assert [side.name for side in sides()] == ["whole", "answers", "stores"]
