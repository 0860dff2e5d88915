"""Our broker removes old messages while it is used, and goes on from what is left after a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from tests.support.aging_broker import (
    CLEAN_EXPIRED_CONSUMEQUEUE,
    CLEAN_UNUSED_TOPIC,
    DELETE_EXPIRED_COMMITLOG,
    EARLIEST,
    GET_MAX,
    GET_MIN,
    LOG_FILE,
    QUERY_MESSAGE,
    RUNTIME_INFO,
    SUCCESS,
    TOPIC,
    AgingBroker,
)
from tests.support.our_servers import OurServer, OurServers
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

MESSAGES = 30


@pytest.fixture
def broker(servers: OurServers) -> AgingBroker:
    return AgingBroker(servers)


def first_names(folder: Path, count: int) -> list[int]:
    return [int(path.name) for path in sorted(folder.iterdir())[:count]]


@pytest.mark.long
@pytest.mark.parametrize("how", [OurServer.kill, OurServer.stop])
def test_expired_messages_are_removed_on_request_and_all_else_stays(
    broker: AgingBroker, how: Callable[[OurServer], object]
):
    for n in range(MESSAGES):
        broker.send(n)
    with RawClient(broker.server.address) as client:
        first_sent = client.ask(EARLIEST, {"topic": TOPIC, "queueId": "0"}).fields["timestamp"]
    # The index is made a moment after the messages, by a query at the latest.
    with RawClient(broker.server.address) as client:
        client.ask(
            QUERY_MESSAGE, {"topic": TOPIC, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
        )
    first_index_file = min((broker.store / "index").iterdir())

    broker.clean(4)
    assert first_names(broker.store / "commitlog", 1) == [4 * LOG_FILE]
    wait_until(lambda: first_names(broker.store / "consumequeue" / TOPIC / "0", 1) == [200], "the queue is cleaned")
    wait_until(lambda: not first_index_file.exists(), "the index file is removed")
    broker.check_holds(12, MESSAGES)
    info = KVTable.decode(broker.ask(RUNTIME_INFO).body).table
    assert info["commitLogMinOffset"] == str(4 * LOG_FILE)
    earliest = broker.ask(EARLIEST, {"topic": TOPIC, "queueId": "0"}).fields["timestamp"]
    assert int(info["earliestMessageTimeStamp"]) == int(earliest) > int(first_sent)
    broker.send(MESSAGES)

    broker.restart(how)
    broker.check_holds(12, MESSAGES + 1)
    for code in (CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC, DELETE_EXPIRED_COMMITLOG):
        assert broker.ask(code).code == SUCCESS
    broker.check_holds(12, MESSAGES + 1)
    broker.send(MESSAGES + 1)
    assert not broker.servers.errors()


@pytest.mark.long
def test_a_queue_without_messages_keeps_its_next_offset(broker: AgingBroker):
    for n in range(6):
        broker.send(n)
    for n in range(3):
        broker.send(n, "New")
    broker.age(2)
    assert broker.ask(DELETE_EXPIRED_COMMITLOG).code == SUCCESS

    wait_until(lambda: broker.offset(GET_MIN) == 6, "the queue begins at the end")
    assert broker.ask(CLEAN_EXPIRED_CONSUMEQUEUE).code == SUCCESS
    assert broker.offset(GET_MAX) == 6
    broker.restart(OurServer.kill)
    assert (broker.offset(GET_MIN), broker.offset(GET_MAX)) == (6, 6)
    broker.send(6)
    broker.check_holds(6, 7)
