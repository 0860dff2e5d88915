import asyncio

import pytest

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from tests.support.fakes import FakeConnection
from tests.support.waiting import until


async def test_queries_beyond_the_limit_are_rejected_until_others_have_ended():
    queries, connection = WaitingQueries(BrokerConfig(max_waiting_queries=1)), FakeConnection()
    async with queries.one_more(connection):
        with pytest.raises(BrokerResponseError) as error:
            async with queries.one_more(connection):
                pass
        assert error.value.code == ResponseCode.SYSTEM_BUSY
        assert error.value.remark.startswith("maxWaitingQueries: 1 queries are running, 1 of them from the address")
    with pytest.raises(ValueError, match="failed"):
        async with queries.one_more(connection):
            raise ValueError("failed")
    async with queries.one_more(connection):
        pass
    assert (queries._turns, queries._count) == ({}, 0)


class Load:
    """Queries that run until they are let go."""

    def __init__(self, queries: WaitingQueries) -> None:
        self._queries = queries
        self._gate = asyncio.Event()
        self.running: list[str] = []

    async def query(self, host: str, port: int) -> str:
        try:
            async with self._queries.one_more(FakeConnection(f"{host}:{port}")):
                self.running.append(host)
                await self._gate.wait()
        except BrokerResponseError:
            return "busy"
        return "done"

    def let_go(self) -> None:
        self._gate.set()


async def test_an_address_with_many_connections_leaves_others_their_queries():
    load = Load(WaitingQueries(BrokerConfig(max_waiting_queries=256)))
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(load.query("192.0.2.1", port)) for port in range(300)]
        await until(lambda: sum(each.done() for each in flood) == 300 - 128)
        lawful = group.create_task(load.query("192.0.2.2", 1))
        await until(lambda: "192.0.2.2" in load.running)
        assert load.running == ["192.0.2.1"] * 4 + ["192.0.2.2"], "few of one address are at work at a time"
        load.let_go()
    assert [each.result() for each in flood] == ["done"] * 128 + ["busy"] * 172
    assert lawful.result() == "done"
