"""``mqadmin consumerStatus`` (org.apache.rocketmq.tools.command.consumer.ConsumerStatusSubCommand)."""

import msgspec

from rocketbroker.app.mqadmin.running import AsJson, Group, NamesrvAddr, run
from rocketbroker.app.terminal import Column, Report, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.requests import version_desc
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo
from rocketbroker.common.errors import CodecError, RocketBrokerError

_SAME = "Same subscription in the same group of consumer"
_DIFFERENT = "WARN: Different subscription in the same group of consumer!!!"


class ClientRow(msgspec.Struct, rename="camel"):
    """One client and its subscriptions by topic; ``None`` if it did not answer."""

    client_id: str
    client_addr: str
    version: str
    subscriptions: dict[str, str] | None


def command(group: Group, namesrv_addr: NamesrvAddr = None, as_json: AsJson = False) -> None:
    """Show clients of a group and their subscriptions."""
    run(namesrv_addr, as_json, lambda admin: examine(admin, group.strip()))


async def examine(admin: AdminClient, group: str) -> Report:
    """Ask the broker for the clients, then each client for its subscriptions."""
    consumers, conflict = await admin.examine_consumers(group)
    rows, failures = [], []
    for client in consumers.connection_set:
        subscriptions = None
        try:
            subscriptions = subscriptions_of(await admin.get_consumer_running_info(group, client.client_id))
        except RocketBrokerError as error:
            failures.append(f"{client.client_id}: {error}")
        rows.append(ClientRow(client.client_id, client.client_addr, version_desc(client.version), subscriptions))
    known = [row.subscriptions for row in rows if row.subscriptions is not None]
    same = not conflict and all(each == known[0] for each in known)
    data = {"group": group, "clients": rows, "same": same, "conflict": conflict}
    lines = [_SAME] if same else list(filter(None, [_DIFFERENT, conflict]))
    return Report(data, [_table(rows), "", *lines], failures)


def subscriptions_of(info: ConsumerRunningInfo) -> dict[str, str]:
    """Return the subscriptions of a client by topic, without that to retries.

    Raises:
        CodecError: the client does not report them.
    """
    if info.subscription_set is None:
        raise CodecError("ConsumerRunningInfo: subscriptionSet is missing")
    pairs = sorted((each.topic, each.sub_string) for each in info.subscription_set)
    return {topic: text for topic, text in pairs if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)}


def _table(rows: list[ClientRow]) -> Table:
    titles = ("#Index", "#ClientId", "#ClientAddr", "#Version", "#Subscription")
    cells = [
        [str(number), row.client_id, row.client_addr, row.version, _text(row.subscriptions)]
        for number, row in enumerate(rows, 1)
    ]
    return Table([*map(Column, titles)], cells)


def _text(subscriptions: dict[str, str] | None) -> str:
    return "-" if subscriptions is None else ", ".join(f"{topic}: {text}" for topic, text in subscriptions.items())
