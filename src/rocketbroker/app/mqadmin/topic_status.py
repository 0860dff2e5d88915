"""``mqadmin topicStatus`` (org.apache.rocketmq.tools.command.topic.TopicStatusSubCommand)."""

import msgspec

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, RouteCluster, Topic, run
from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.app.times import human_millis
from rocketbroker.client.admin.admin_client import AdminClient


class QueueRow(msgspec.Struct, rename="camel"):
    """One queue; ``last_update_timestamp`` in ms, 0 if nothing was stored."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_timestamp: int


def command(
    topic: Topic,
    namesrv_addr: NamesrvAddr = None,
    cluster: RouteCluster = None,
    as_json: AsJson = False,
) -> None:
    """Show the offsets of a topic's queues."""
    run(namesrv_addr, as_json, lambda admin: examine(admin, topic.strip(), cluster))


async def examine(admin: AdminClient, topic: str, cluster: str | None) -> Report:
    """Return the offsets that the brokers of the topic report."""
    stats = await admin.examine_topic_stats(topic, cluster)
    rows = [
        QueueRow(queue.broker_name, queue.queue_id, offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in sorted(stats.offset_table.items())
    ]
    titles = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    cells = [
        [
            *map(str, (row.broker_name, row.queue_id, row.min_offset, row.max_offset)),
            human_millis(row.last_update_timestamp),
        ]
        for row in rows
    ]
    data = {"topic": topic, "queues": rows, "topicPutTps": stats.topic_put_tps}
    return Report(data, [Table([*map(Column, titles)], cells), "", f"Topic Put TPS: {stats.topic_put_tps}"])
