"""``mqadmin deleteTopic`` (org.apache.rocketmq.tools.command.topic.DeleteTopicSubCommand)."""

from difflib import get_close_matches
from typing import Annotated

import typer

from rocketbroker.app.mqadmin.running import AsJson, NamesrvAddr, Topic, run
from rocketbroker.app.terminal import Report
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


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
    if not await _exists(admin, addresses, topic):
        near = get_close_matches(topic, await admin.fetch_all_topic_list(), 1)
        question = f"did you mean {near[0]}?" if near else "mqadmin topicList lists the topics"
        raise ClientError(f"there is no topic {topic!r}, and nothing was deleted; {question}")
    await admin.delete_topic_in_broker(addresses, topic)
    await admin.delete_topic_in_name_server(topic, cluster)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    return Report({"topic": topic, "clusterName": cluster, "brokers": addresses}, lines)


async def _exists(admin: AdminClient, addresses: list[str], topic: str) -> bool:
    """Return true if a name server or a broker knows a topic: one may have what the other has lost."""
    try:
        await admin.examine_topic_route_info(topic)
    except TopicRouteError:
        for address in addresses:
            try:
                await admin.examine_topic_config(address, topic)
            except BrokerResponseError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
            return True  # also if a broker of 4.x does not know the request
        return False
    return True
