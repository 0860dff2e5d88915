"""A master that stood still while a slave acted for it: what fell due meanwhile is delivered once."""

import asyncio
from pathlib import Path

import pytest

from rocketbroker.client import Message, Producer, PullConsumer, SendStatus
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import BrokerResponseError
from tests.support.our_servers import OurServers, make_topic

MESSAGES = 20
ACTING: dict[str, str | int] = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerHeartbeatInterval": 200,
    # A busy machine may hold up each of the processes for a second.
    "brokerNotActiveTimeoutMillis": 3_000,
    "syncBrokerMemberGroupPeriod": 200,
    "haHousekeepingInterval": 3_000,
    "haSendHeartbeatInterval": 300,
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": 1 << 20,
}


async def send_for_later(namesrv: str, count: int, level: int, delay_ms: int) -> None:
    """Send delayed messages and timer messages to broker-a, which its slave has when this returns."""
    queue = MessageQueue("T", "broker-a", 0)
    async with Producer("PG", namesrv) as producer:
        for number in range(count // 2):
            delayed = Message("T", b"delayed %d" % number, delay_time_level=level)
            timed = Message("T", b"timer %d" % number, delay_time_ms=delay_ms)
            for message in (delayed, timed):
                assert (await producer.send(message, queue)).send_status is SendStatus.SEND_OK


async def ends(namesrv: str, broker: str) -> int:
    """Return the end of the queue of T at a broker."""
    async with PullConsumer("G", namesrv) as consumer:
        return await consumer.max_offset(MessageQueue("T", broker, 0))


async def slave_counts(namesrv: str) -> None:
    """Send to another topic until the slave is in sync: before that the master rejects sends."""
    queue = MessageQueue("OTHER", "broker-a", 0)
    async with Producer("PG", namesrv) as producer, asyncio.timeout(60):
        while True:
            try:
                if (await producer.send(Message("OTHER", b"probe"), queue)).send_status is SendStatus.SEND_OK:
                    return
            except BrokerResponseError as error:
                assert "IN_SYNC_REPLICAS_NOT_ENOUGH" in str(error)  # noqa: PT017 - tried again
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
@pytest.mark.long
def test_what_fell_due_while_a_master_stood_still_is_delivered_once(tmp_path: Path):
    servers = OurServers(tmp_path)
    try:
        namesrv = servers.namesrv(supportActingMaster="true", notifyMinBrokerIdChanged="true")
        sync: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
        master = servers.broker(namesrv.address, None, **ACTING, **sync)
        servers.broker(namesrv.address, None, **ACTING, brokerRole="SLAVE", brokerId=1)
        other = servers.broker(namesrv.address, None, **ACTING, brokerName="broker-b")
        for broker in (master, other):
            make_topic(broker.address, namesrv.address, "T", 1)
        make_topic(master.address, namesrv.address, "OTHER", 1)
        asyncio.run(slave_counts(namesrv.address))
        asyncio.run(send_for_later(namesrv.address, MESSAGES, 2, 5_000))

        master.freeze()
        other.wait_until(
            lambda: asyncio.run(ends(namesrv.address, "broker-b")) == MESSAGES, 60, "the slave has sent all elsewhere"
        )
        master.thaw()
        master.wait_for("deliveries continue after a pause")
        asyncio.run(slave_counts(namesrv.address))
        # What is sent now is delivered after all that was due before it.
        asyncio.run(send_for_later(namesrv.address, 2, 1, 1_000))
        master.wait_until(
            lambda: asyncio.run(ends(namesrv.address, "broker-a")) >= 2, 60, "the later messages are delivered"
        )
        assert asyncio.run(ends(namesrv.address, "broker-a")) == 2
        assert asyncio.run(ends(namesrv.address, "broker-b")) == MESSAGES
    finally:
        servers.close()
