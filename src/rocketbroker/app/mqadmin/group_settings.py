"""Sub-commands that change and show the settings of consumer groups (org.apache.rocketmq.tools.command.consumer)."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rocketbroker.app.mqadmin.command import (
    OnBroker,
    OnCluster,
    Report,
    TrueFalse,
    ask_each,
    chosen_brokers,
    chosen_masters,
    failure_lines,
    java_text,
    sub_command,
    with_hint,
)
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.admin.admin_connection import addresses_of
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    validate_group,
)
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, SubscriptionGroupList
from rocketbroker.common.errors import CodecError, RocketBrokerError

_RULE = "============================="


@sub_command("updateSubGroupList", "Create or change consumer groups from a file.", dry_run=True)
async def update_sub_group_list(
    admin: AdminClient,
    filename: Annotated[
        Path,
        typer.Option("-f", "--filename", metavar="FILE", help="JSON list of groups, each with groupName and settings."),
    ],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Create or change all consumer groups in a file, on one broker (-b) or in a cluster (-c).

    The file has what getConsumerConfig --json prints as subscriptionGroupConfig, in a list; settings that are missing
    get their defaults.
    """
    configs = groups_in(filename)
    succeeded, failed = await ask_each(
        await chosen_masters(admin, broker_addr, cluster_name),
        lambda address: admin.create_and_update_subscription_group_config_list(address, configs),
    )
    kind = "group" if cluster_name is None else "subscription group"
    lines = [f"submit batch of {kind} config to {each} success, please check the result later." for each in succeeded]
    data = {"brokers": succeeded, "groups": [config.group_name for config in configs]}
    return Report(data, lines, failure_lines(failed))


def groups_in(path: Path) -> list[SubscriptionGroupConfig]:
    """Return the groups in a file.

    Raises:
        typer.BadParameter: the file cannot be read, or has no valid groups; the text says what is wrong.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"-f {path}: {error.strerror}") from error
    try:
        configs = SubscriptionGroupList.decode(b'{"groupConfigList":' + text + b"}").group_config_list
    except CodecError as error:
        raise typer.BadParameter(f"-f {path}: no JSON list of groups: {error}") from error
    if not configs:
        raise typer.BadParameter(f"-f {path}: the list has no group")
    for config in configs:
        checked = validate_group(config.group_name)
        if not checked.valid:
            raise typer.BadParameter(f"-f {path}: {checked.remark}")
    return configs


@sub_command(
    "deleteSubGroup", "Delete a consumer group.", deletes="Delete the consumer group {group_name}?", dry_run=True
)
async def delete_sub_group(
    admin: AdminClient,
    group_name: Annotated[str, typer.Option("-g", "--groupName", metavar="GROUP", help="Consumer group.")],
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
    remove_offset: Annotated[
        TrueFalse, typer.Option("-r", "--removeOffset", help="Delete the group's offsets too.")
    ] = TrueFalse.false,
) -> Report:
    """Delete a consumer group on one broker (-b); or in a cluster (-c), with its retry topic and dead letters."""
    addresses = await chosen_masters(admin, broker_addr, cluster_name)
    succeeded, failed = await ask_each(
        addresses,
        lambda address: admin.delete_subscription_group(address, group_name, clean_offset=remove_offset.is_true),
    )
    where = f" in cluster [{cluster_name}]" if cluster_name else ""
    lines = [f"delete subscription group [{group_name}] from broker [{each}]{where} success." for each in succeeded]
    failures = failure_lines(failed)
    topics: list[str] = []
    if cluster_name and not failed:
        for topic in (RETRY_GROUP_TOPIC_PREFIX + group_name, DLQ_GROUP_TOPIC_PREFIX + group_name):
            try:
                await _delete_topic(admin, topic, cluster_name, addresses)
            except RocketBrokerError as error:
                failures.append(f"{topic}: {with_hint(error)}")
            else:
                topics.append(topic)
    return Report({"group": group_name, "brokers": succeeded, "topics": topics}, lines, failures)


async def _delete_topic(admin: AdminClient, topic: str, cluster: str, addresses: list[str]) -> None:
    """Delete a topic of a cluster where it exists."""
    try:
        await admin.examine_topic_route_info(topic)
    except TopicRouteError:
        return
    await admin.delete_topic_in_broker(addresses, topic)
    await admin.delete_topic_in_name_server(topic, cluster)


class ConfigRow(msgspec.Struct, rename="camel"):
    """Settings of a group on one broker."""

    cluster_name: str
    broker_name: str
    subscription_group_config: SubscriptionGroupConfig


@sub_command("getConsumerConfig", reads=True)
async def get_consumer_config(
    admin: AdminClient,
    group_name: Annotated[str, typer.Option("-g", "--groupName", metavar="GROUP", help="Consumer group.")],
) -> Report:
    """Show the settings of a consumer group on each broker that has it."""
    info = await admin.examine_broker_cluster_info()
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    rows, failures = [], []
    for name, data in sorted(info.broker_addr_table.items()):
        for address in addresses_of([data]):
            try:
                # A broker that is asked for one group may create it; asked for all, it does not.
                table = (await admin.get_all_subscription_group(address)).subscription_group_table
            except RocketBrokerError as error:
                failures.append(f"{address}: {with_hint(error)}")
                continue
            if group_name in table:
                rows.append(ConfigRow(clusters.get(name, data.cluster), name, table[group_name]))
    if not rows and not failures:
        raise ClientError(f"no broker has the consumer group {group_name!r}")
    lines: list[str] = []
    for row in rows:
        lines.append(f"{_RULE}{row.cluster_name}:{row.broker_name}{_RULE}")
        config = row.subscription_group_config
        names = zip(config.__struct_fields__, config.__struct_encode_fields__, strict=True)
        for name, shown in names:
            value = getattr(config, name)
            lines.append(f"{shown:<40}=  {'' if value is None else java_text(value)}")
    return Report({"group": group_name, "brokers": rows}, lines, failures)


@sub_command("exportPopRecord", "Let brokers write their pop records from RocksDB to the log.")
async def export_pop_record(
    admin: AdminClient,
    broker_addr: OnBroker = None,
    cluster_name: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Apply on all brokers of this cluster.")
    ] = None,
    only_show: Annotated[
        TrueFalse, typer.Option("-d", "--dryRun", help="Show the brokers, and change nothing.")
    ] = TrueFalse.false,
) -> Report:
    """Let brokers write their pop records from RocksDB to the log, before a downgrade of Apache RocketMQ.

    Our brokers have all pop records in the log, and do nothing.
    """
    if broker_addr is None and cluster_name is None:
        raise typer.BadParameter("give either -b (one broker) or -c (all brokers of a cluster)")
    addresses = await chosen_brokers(admin, broker_addr, cluster_name)
    names = await _names_by_address(admin)
    failed: dict[str, RocketBrokerError] = {}
    if not only_show.is_true:
        _, failed = await ask_each(addresses, admin.export_pop_records)
    done = [address for address in addresses if address not in failed]
    lines = [
        f"Export broker records, brokerName={names.get(each, 'null')}, brokerAddr={each}, dryRun={only_show.value}"
        for each in done
    ]
    failures = failure_lines(failed)
    return Report({"brokers": done, "dryRun": only_show.is_true}, lines, failures)


async def _names_by_address(admin: AdminClient) -> dict[str, str]:
    table = (await admin.examine_broker_cluster_info()).broker_addr_table
    return {address: name for name, data in table.items() for address in data.broker_addrs.values()}
