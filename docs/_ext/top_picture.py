"""Picture of ``mqadmin top`` for the manual, from a real run: ``python -m docs._ext.top_picture [FILE]``.

The run is a name server and a broker with producers and consumers, one of which is stopped, so that a group falls
behind. The picture is not among the generated pages, whose content a test compares: its figures differ each time.
"""

import asyncio
import re
import sys
from functools import partial
from io import StringIO
from pathlib import Path

from rich.console import Console, Group

from rocketbroker.app.mqadmin.top_data import Collector, Snapshot
from rocketbroker.app.mqadmin.top_screen import Screen
from rocketbroker.client import AdminClient, Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.testing import RocketMQServer

PICTURE = Path(__file__).parents[1] / "pictures" / "top.svg"
_WIDTH, _HEIGHT = 84, 16
_TOPICS = {"Orders": ("CG_billing", "CG_shipping"), "Payments": ("CG_ledger",), "Clicks": ("CG_statistics",)}
_STOPPED = "CG_shipping"
_PAUSE_S = 0.004
_LOOKS = 8


async def _consume(_message: ReceivedMessage) -> None:
    """Acknowledge a message."""


async def snapshot_of_a_run() -> Snapshot:
    """Run servers and clients for some seconds and return the last look."""
    load = TaskOwner("load")
    async with (
        RocketMQServer() as mq,
        AdminClient(mq.namesrv_addr) as admin,
        Producer("producers", mq.namesrv_addr) as producer,
    ):
        for topic in _TOPICS:
            await producer.send(Message(topic, b"first"))
        consumers = {}
        for topic, groups in _TOPICS.items():
            for group in groups:
                consumers[group] = PushConsumer(group, mq.namesrv_addr, handler=_consume, persist_interval_s=1)
                await consumers[group].start()
                await consumers[group].subscribe(topic)

        async def send(topic: str) -> None:
            await producer.send(Message(topic, bytes(200)))

        clock = SystemClock()
        collector = Collector(admin, clock.time_ms, clock.monotonic)
        for number, topic in enumerate(_TOPICS, 1):
            load.every(_PAUSE_S * number, partial(send, topic), topic)
        for look in range(_LOOKS):
            snapshot = await collector.look()
            if look == 1:
                await consumers.pop(_STOPPED).close()
            await asyncio.sleep(1)
        await load.stop()
        for consumer in consumers.values():
            await consumer.close()
    return snapshot


def picture(snapshot: Snapshot) -> str:
    """Return the list of groups as SVG, without fonts from the network."""
    screen = Screen()
    screen.press("2", snapshot)
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Group(*screen.lines(snapshot, _WIDTH, _HEIGHT)))
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="mqadmin top"), flags=re.DOTALL)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    target.write_text(picture(asyncio.run(snapshot_of_a_run())), encoding="utf-8")
