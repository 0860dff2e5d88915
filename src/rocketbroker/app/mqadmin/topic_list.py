"""``mqadmin topicList`` (org.apache.rocketmq.tools.command.topic.TopicListSubCommand)."""

from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, run
from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX


class TopicRow(msgspec.Struct, rename="camel"):
    """A topic with its cluster and consumer groups."""

    cluster_name: str
    topic: str
    consumer_groups: list[str]


def command(
    namesrv_addr: NamesrvAddr = None,
    cluster_model: Annotated[
        bool,
        typer.Option(
            "-c", "--clusterModel", help="Show clusters and consumer groups too; omit %RETRY% and %DLQ% topics."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all topics."""
    run(namesrv_addr, as_json, examine_clusters if cluster_model else examine)


async def examine(admin: AdminClient) -> Report:
    """Return the names in the order of the name server."""
    topics = await admin.fetch_all_topic_list()
    return Report({"topics": topics}, topics)


async def examine_clusters(admin: AdminClient) -> Report:
    """Return the topics and their groups, without retry and dead-letter topics."""
    rows = []
    for topic in await admin.fetch_all_topic_list():
        if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
            continue
        try:
            route = await admin.examine_topic_route_info(topic)
            groups = await admin.query_topic_consume_by_who(topic)
        except TopicRouteError:
            continue  # deleted since the list was fetched
        rows.append(TopicRow(route.broker_datas[0].cluster if route.broker_datas else "", topic, sorted(groups)))
    columns = [Column("#Cluster Name"), Column("#Topic"), Column("#Consumer Group")]
    cells = [[row.cluster_name, row.topic, group] for row in rows for group in row.consumer_groups or [""]]
    return Report({"topics": rows}, [Table(columns, cells)])
