"""``mqadmin deleteTopic`` (org.apache.rocketmq.tools.command.topic.DeleteTopicSubCommand)."""

from typing import Annotated

import typer

from rocketbroker.app.mqadmin.report import Report
from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, Topic, run
from rocketbroker.client.admin_client import AdminClient


def command(
    topic: Topic,
    cluster_name: Annotated[
        str, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Delete on all masters of this cluster.")
    ],
    namesrv_addr: NamesrvAddr = None,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and its messages from a cluster and from the name servers."""
    run(namesrv_addr, as_json, lambda admin: examine(admin, topic.strip(), cluster_name.strip()))


async def examine(admin: AdminClient, topic: str, cluster: str) -> Report:
    """Delete the topic on the brokers first, so that none registers it again."""
    addresses = list((await admin.fetch_master_addresses(cluster)).values())
    await admin.delete_topic_in_broker(addresses, topic)
    await admin.delete_topic_in_name_server(topic, cluster)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    return Report({"topic": topic, "clusterName": cluster, "brokers": addresses}, lines)
