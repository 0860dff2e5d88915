"""mqadmin doctor at a cluster in this process whose servers have a fault each: one run finds them all."""

import asyncio
import os
import re
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings, disk_use, namesrv_settings
from rocketbroker.app.mqadmin.checks.finding import Finding
from rocketbroker.app.mqadmin.doctor import doctor
from rocketbroker.app.mqadmin.named_clusters import EXPECTED_BROKERS
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.platform import mapped_count, open_file_count
from rocketbroker.processor.admin import runtime_info
from rocketbroker.testing.clocks import ControlledClock
from tests.support.ports import LOOPBACK
from tests.support.promotion import SETTINGS, Link
from tests.support.running import running
from tests.support.waiting import until

# A loopback address where nothing listens.
UNREACHABLE = "127.0.0.9"
# More than doctor opens, so that its connections do not reach the limit.
_OPEN = 400


class FaultyCluster:
    """A name server, and brokers with a fault each.

    Args:
        folder: for the stores.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namesrv = NamesrvController(namesrv_settings(0, folder))
        self._clock = ControlledClock()
        self._link = Link()

    @asynccontextmanager
    async def _broker(self, name: str, store: str = "", **properties: str) -> AsyncIterator[BrokerController]:
        settings = broker_settings(
            0,
            self._folder / (store or name),
            self._namesrv.address,
            name=name,
            advertise=UNREACHABLE if name == "hidden" else LOOPBACK,
            properties={**SETTINGS, **properties},
        )
        percent = 80 if name == "full" else 10
        clock = self._clock if name == "early" else None
        made = BrokerController.bind(settings, clock, measure_disk=lambda _folder: disk_use(percent))
        async with running(made) as broker:
            yield broker

    async def examine(self) -> list[Finding]:
        """Start all, make the faults, and return what doctor finds."""
        async with asyncio.timeout(90), AsyncExitStack() as stack:
            enter = stack.enter_async_context
            await enter(running(self._namesrv))
            await enter(running(self._link))
            master = await enter(self._broker("full", haMaxGapNotInSync="2000"))
            self._link.target = master._settings.store.ha_listen_port
            for name in ("hidden", "early"):
                await enter(self._broker(name))
            await enter(self._broker("orphan", brokerRole="SLAVE", brokerId="1", haMasterAddress=f"{LOOPBACK}:1"))
            follows = f"{LOOPBACK}:{self._link.port}"
            slave = await enter(
                self._broker("full", "slave", brokerRole="SLAVE", brokerId="1", haMasterAddress=follows)
            )
            await until(lambda: master.replication.runtime_info().in_sync_slave_nums)
            await until(lambda: not slave.replication.problem())
            self._clock.step(-90)
            await self._leave_a_slave_behind(master)
            await self._kill_the_broker_of_a_consumer(stack)
            admin = await enter(AdminClient(self._namesrv.address))
            EXPECTED_BROKERS.set(("full", "planned"))
            with near_limits():
                found: list[Finding] = (await doctor(admin)).data["findings"]
            return found

    async def _leave_a_slave_behind(self, master: BrokerController) -> None:
        self._link.allow(0)
        master.topic_configs.update(TopicConfig("T", 1, 1))
        await asyncio.gather(*master.outer_api.register_all())
        async with Producer("PG", self._namesrv.address) as producer:
            await producer.send(Message("T", bytes(4000)), queue=MessageQueue("T", "full", 0))

    async def _kill_the_broker_of_a_consumer(self, stack: AsyncExitStack) -> None:
        async with self._broker("killed") as killed:
            killed.topic_configs.update(TopicConfig("Lost", 1, 1))
            await asyncio.gather(*killed.outer_api.register_all())
            consumer = await stack.enter_async_context(PushConsumer("CG", self._namesrv.address, handler=ignore))
            await consumer.subscribe("Lost")
            await consumer.subscribe("T")
            await until(lambda: {queue.broker_name for queue in consumer.queues} == {"killed", "full"})


async def ignore(_message: ReceivedMessage) -> None:
    await asyncio.sleep(0)


@contextmanager
def near_limits() -> Iterator[None]:
    """Lower the limits of this process to little more than it uses."""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(_OPEN)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, ((open_file_count() or 0) * 100 // 85, hard))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime_info, "max_map_count", lambda: mapped_count() * 100 // 85)
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in files:
            os.close(each)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """All that doctor finds."""
    return asyncio.run(FaultyCluster(tmp_path_factory.mktemp("faults")).examine())


@pytest.mark.parametrize(
    ("check", "subject", "evidence"),
    [
        ("disk", "broker full", "its disk is 80% full: above 75% it removes expired files at once"),
        ("replica", "broker full", r"its slave 127\.0\.0\.1:\d+ is [\d,]+ bytes behind \(in sync below 2,000\)"),
        ("replica", r"broker orphan \(slave 1\)", "does not follow its master: .*"),
        ("missingBroker", "broker orphan", r"its slave 127\.0\.0\.1:\d+ is registered, and no master"),
        ("missingBroker", "broker killed", "is registered at no name server, though client .* of group CG still has"),
        ("missingBroker", "broker planned", "is registered at no name server, though the file of clusters names it"),
        ("advertisedAddress", "broker hidden", rf"advertises {re.escape(UNREACHABLE)}:\d+, which does not answer here"),
        ("clock", "broker early", r"its clock is \d+ s behind that of this machine"),
        ("limit", "broker early", r"[\d,]+ open files of at most [\d,]+"),
        ("limit", "broker early", r"[\d,]+ mapped files of at most [\d,]+"),
    ],
)
def test_a_fault_of_a_server_is_found(findings: list[Finding], check: str, subject: str, evidence: str):
    of_server = [each for each in findings if each.check == check and re.fullmatch(subject, each.subject)]
    assert any(re.match(evidence, each.evidence) for each in of_server), of_server or findings


def test_servers_have_no_other_faults(findings: list[Finding]):
    by_subject: dict[str, set[Any]] = {}
    for each in findings:
        if each.subject.startswith("broker") and each.check != "limit":
            by_subject.setdefault(each.subject, set()).add(each.check)
    assert by_subject == {
        "broker full": {"disk", "replica"},
        "broker full (slave 1)": {"disk"},
        "broker hidden": {"advertisedAddress"},
        "broker early": {"clock"},
        "broker orphan": {"missingBroker"},
        "broker orphan (slave 1)": {"replica"},
        "broker killed": {"missingBroker"},
        "broker planned": {"missingBroker"},
    }
