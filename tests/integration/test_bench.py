"""mqadmin bench against a running broker."""

import asyncio
import os
import signal

import msgspec
import pytest

from rocketbroker.app.mqadmin.bench import bench
from rocketbroker.client import AdminClient
from rocketbroker.client.core.errors import ClientError
from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked
from tests.support.waiting import until

TOPIC, TASKS = "Load", 4


async def test_every_load_counts_its_messages_and_leaves_nothing_behind(admin: AdminClient):
    before = set(await admin.fetch_all_topic_list())
    report = await bench(admin, TOPIC, messages=64, duration=30, rate=1000, create=True, clean=True)
    assert not report.failures
    checked("bench", msgspec.to_builtins(report.data))
    counts = {each.load.value: (each.messages, each.failed) for each in report.data["loads"]}
    assert counts == {
        "sync": (64, 0), "async": (64, 0), "batch": (64, 0), "consume": (64, 0), "e2e": (64, 0),
    }  # fmt: skip
    assert all(each.latency_ms["p50"] > 0 for each in report.data["loads"])
    assert (report.data["created"], report.data["removed"]) == (True, True)
    after = {name for name in await admin.fetch_all_topic_list() if not name.startswith("%RETRY%")}
    assert after == before


async def test_what_was_there_before_stays(admin: AdminClient):
    await bench(admin, TOPIC, "sync", messages=10, create=True)
    again = await bench(admin, TOPIC, "sync", messages=10, create=True, clean=True)
    assert (again.data["created"], again.data["removed"]) == (False, False)
    read = await bench(admin, TOPIC, "consume")
    assert [each.messages for each in read.data["loads"]] == [20]
    only_sent = await bench(admin, TOPIC, "batch,consume", messages=6, batch=3)
    assert [each.messages for each in only_sent.data["loads"]] == [6, 6]


async def test_a_topic_that_does_not_exist_is_not_created_by_a_send(admin: AdminClient):
    with pytest.raises(ClientError, match="there is no topic 'Misspelt', and nothing was sent; create it by --create"):
        await bench(admin, "Misspelt", messages=1)
    assert "Misspelt" not in await admin.fetch_all_topic_list()


async def test_an_unknown_cluster_is_named_with_the_known_ones(admin: AdminClient):
    with pytest.raises(ClientError, match="'Other' does not exist; the name server knows: DefaultCluster"):
        await bench(admin, TOPIC, messages=1, create=True, cluster="Other")


async def test_ctrl_c_ends_the_load_with_its_figures_and_cleans_up(mq: RocketMQServer, admin: AdminClient):
    async def interrupt() -> None:
        await until(lambda: len(mq.messages(TOPIC)) > 2 * TASKS)  # each sender has had an answer
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = asyncio.create_task(interrupt())
    try:
        report = await bench(admin, TOPIC, "sync,async", duration=60, tasks=TASKS, create=True, clean=True)
    finally:
        interrupting.cancel()  # without the handler of the bench, the signal would end the whole run
    assert [each.load.value for each in report.data["loads"]] == ["sync"]
    assert report.data["loads"][0].messages > 0
    assert report.failures == ["stopped by Ctrl-C; the figures are those until then"]
    assert TOPIC not in await admin.fetch_all_topic_list()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_sends_that_a_broker_rejects_are_counted_with_the_reason(admin: AdminClient):
    await bench(admin, TOPIC, "sync", messages=1, create=True)
    for address in await admin.fetch_broker_addresses():
        await admin.update_broker_config(address, {"brokerPermission": "4"})
    report = await bench(admin, TOPIC, "sync,e2e", messages=4, tasks=2, duration=5)
    assert [(each.messages, each.failed) for each in report.data["loads"]] == [(0, 4), (0, 4)]
    assert [line.partition(":")[0] for line in report.failures] == ["sync", "e2e"]
    assert "has no queue that can be written" in report.failures[0]
