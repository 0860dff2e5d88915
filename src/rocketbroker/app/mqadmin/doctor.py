"""``mqadmin doctor``: what is wrong with a cluster, with evidence and a remedy. RocketMQ has no such command.

Each check is a function from the facts of the cluster to findings. To add one, write the function and enter it in
``CHECKS``.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from rocketbroker.app.mqadmin.cluster_facts import BrokerFacts, ClusterFacts, GroupFacts, collect
from rocketbroker.app.mqadmin.command import Report, sub_command
from rocketbroker.app.mqadmin.remedies import counted, mqadmin, register_topic
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, PERM_WRITE

# Clocks further apart than this make delayed messages, retention and traces wrong. Uptimes are exact to 1 s.
_SKEW_MS: Final = 10_000
# Default of fileReservedTime in hours.
_RESERVED_HOURS: Final = 72
_NEAR: Final = 0.05
# Share of a limit of the system from which it is near.
_NEAR_LIMIT: Final = 0.8
_MAX_GAP: Final = 256 << 20
_PASSIVE: Final = (ConsumeType.CONSUME_PASSIVELY,)


class Severity(StrEnum):
    """Severity of a finding: something fails now, or will."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, rename="camel"):
    """Something wrong.

    Attributes:
        check: name of the check.
        severity: error or warning.
        subject: what it is about, such as ``broker broker-a`` or ``group G``.
        evidence: what was seen, with its values.
        remedy: a command, or what else to do.
    """

    check: str
    severity: Severity
    subject: str
    evidence: str
    remedy: str


@sub_command("doctor", "Find what is wrong with a cluster, and what to do about it.", reads=True)
async def doctor(
    admin: AdminClient,
    group: Annotated[
        str | None, typer.Option("-g", "--group", metavar="GROUP", help="Look at this consumer group only.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Explain why this topic has no route.")
    ] = None,
    severity: Annotated[
        Severity, typer.Option("--severity", help="Least severity of the findings to name and to fail for.")
    ] = Severity.WARNING,
) -> Report:
    """Compare what name servers, brokers and clients say, and name each fault with its evidence and a remedy."""
    facts = await collect(admin, group, topic)
    findings = [found for found in examine(facts) if severity in {Severity.WARNING, found.severity}]
    data = {"findings": findings, "unknown": facts.unknown}
    lines = [
        line
        for found in findings
        for line in (f"{found.severity.value.upper()} {found.subject}: {found.evidence}", f"    {found.remedy}", "")
    ]
    servers, brokers = counted(len(facts.name_servers), "name server"), counted(len(facts.brokers), "broker")
    asked = f"{servers}, {brokers} and {counted(len(facts.groups), 'group')}"
    faults = counted(len(findings), "fault")
    lines.append(f"{faults if findings else 'no faults'} found; asked {asked}")
    lines += [f"not known: {each}" for each in facts.unknown]
    failures = [f"{faults} found"] if findings else []
    return Report(data, lines, failures)


def examine(facts: ClusterFacts) -> list[Finding]:
    """Return what all checks find, errors first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    """Find name servers that do not answer, and brokers that are not registered at all of them."""
    for server in facts.name_servers:
        if server.error:
            yield Finding(
                "nameServer",
                Severity.ERROR,
                f"name server {server.address}",
                f"does not answer: {server.error}",
                f"start it, or remove {server.address} from namesrvAddr of brokers and clients",
            )
    alive = [server for server in facts.name_servers if not server.error]
    for broker in facts.brokers:
        for server in alive:
            data = server.clusters.broker_addr_table.get(broker.name)
            if data is None or data.broker_addrs.get(broker.broker_id) != broker.address:
                yield Finding(
                    "nameServer",
                    Severity.ERROR,
                    f"broker {_label(broker)}",
                    f"is not registered at name server {server.address}, but at another one: clients of "
                    f"{server.address} cannot see it",
                    f"set namesrvAddr={_all_name_servers(facts)} in its configuration, and restart it",
                )


def advertised_addresses(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose advertised address cannot be reached from here, or from other machines."""
    for broker in facts.brokers:
        host, _, port = broker.address.rpartition(":")
        if broker.error and broker.accepts:
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {_label(broker)}",
                f"accepts connections at {broker.address}, but does not answer: {broker.error}",
                "its process hangs or is overloaded: look at its log, and restart it",
            )
        elif broker.error:
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {_label(broker)}",
                f"advertises {broker.address}, which does not answer here: {broker.error}",
                "start it; if it runs, set brokerIP1 to an address that clients reach and restart it; try: "
                f"nc -vz {host} {port}",
            )
        elif _is_loopback(host) and not all(_is_loopback(s.address.rpartition(":")[0]) for s in facts.name_servers):
            yield Finding(
                "advertisedAddress",
                Severity.ERROR,
                f"broker {_label(broker)}",
                f"advertises {broker.address}, which other machines cannot reach",
                "set brokerIP1 in its configuration to the address of the machine, and restart it",
            )


def routes(facts: ClusterFacts) -> Iterator[Finding]:
    """Find topics that clients want and cannot use, and say which of the causes it is."""
    for topic, route in facts.routes.items():
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            continue
        perms = [queues.perm for queues in route.queue_datas if queues.read_queue_nums or queues.write_queue_nums]
        subject = f"topic {topic}"
        if (partial := _registered_partly(facts, topic)) is not None:
            yield Finding("noRoute", Severity.ERROR, subject, *partial)
            continue
        if not perms:
            yield Finding("noRoute", Severity.ERROR, subject, *_why_no_route(facts, topic))
            continue
        for perm, action in ((PERM_WRITE, "written"), (PERM_READ, "read")):
            if not any(each & perm for each in perms):
                yield Finding("noRoute", Severity.ERROR, subject, *_why_forbidden(facts, topic, route, perm, action))
        if not any(MASTER_ID in broker.broker_addrs for broker in route.broker_datas):
            names = ", ".join(broker.broker_name for broker in route.broker_datas)
            yield Finding(
                "noRoute",
                Severity.ERROR,
                subject,
                f"no master is registered for its brokers ({names}): nothing can be sent",
                "start the master of one of these brokers",
            )


def _registered_partly(facts: ClusterFacts, topic: str) -> tuple[str, str] | None:
    """Return evidence and remedy for a topic that some name servers do not know, None if all or none know it."""
    alive = [server for server in facts.name_servers if not server.error]
    having = [server.address for server in alive if topic in server.topics]
    lacking = [server.address for server in alive if topic not in server.topics]
    if not having or not lacking:
        return None
    return (
        f"only name server {', '.join(having)} has its route, and {', '.join(lacking)} does not",
        f"set namesrvAddr={_all_name_servers(facts)} at its brokers, and restart them",
    )


def _why_forbidden(facts: ClusterFacts, topic: str, route: TopicRouteData, perm: int, action: str) -> tuple[str, str]:
    """Return evidence and remedy for a topic without a permission on every broker."""
    seen = ", ".join(f"{queues.perm} on {queues.broker_name}" for queues in route.queue_datas)
    wiped, commands = [], []
    for queues in route.queue_datas:
        for broker in facts.brokers:
            if broker.name != queues.broker_name or broker.broker_id != MASTER_ID:
                continue
            own = broker.topics[topic].perm if topic in broker.topics else queues.perm
            if own & perm:
                wiped.append(broker.name)
            else:
                commands.append(mqadmin("updateTopicPerm", "-b", broker.address, "-t", topic, "-p", own | perm))
    commands = [mqadmin("addWritePerm", "-b", name) for name in sorted(set(wiped))] or commands
    evidence = f"cannot be {action}: its permission is {seen}"
    if wiped:
        evidence += f", since write permission was taken from {', '.join(sorted(set(wiped)))}"
    return evidence, "; ".join(commands) or "start the master of one of its brokers"


def _why_no_route(facts: ClusterFacts, topic: str) -> tuple[str, str]:
    """Return evidence and remedy for a topic without a route."""
    having = [broker for broker in facts.brokers if topic in broker.topics]
    if having:
        names = ", ".join(_label(broker) for broker in having)
        return (
            f"has no route, though broker {names} has the topic: its registration has not arrived",
            "wait 30 s, in which every broker registers again; then: "
            + register_topic(having[0].address, having[0].topics[topic]),
        )
    if not facts.brokers:
        return (
            "has no route, for no broker is registered at the name servers",
            "start mqbroker with namesrvAddr of these name servers",
        )
    if any(topic in server.topics for server in facts.name_servers):
        return (
            "has no queue in its route, and no broker that answers has the topic, though name servers list it",
            "start the brokers that have it",
        )
    creating = [broker for broker in facts.brokers if broker.settings.get("autoCreateTopicEnable") == "true"]
    near = get_close_matches(topic, sorted(set().union(*(server.topics for server in facts.name_servers))), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    first = "the first send would create it" if creating else "and autoCreateTopicEnable is false on every broker"
    return (
        f"does not exist on any broker, {first}{hint}",
        mqadmin("updateTopic", "-c", _cluster(facts), "-t", topic),
    )


def subscriptions(facts: ClusterFacts) -> Iterator[Finding]:
    """Find groups whose clients subscribe differently, so that each misses messages."""
    for group in facts.groups:
        texts = {
            client: sorted((s.topic, s.sub_string) for s in info.subscription_set)
            for client, info in group.running.items()
            if info.subscription_set is not None
        }
        evidence = group.conflict
        if not evidence and len({tuple(each) for each in texts.values()}) > 1:
            evidence = "its clients differ: " + "; ".join(
                f"{client} has {', '.join(f'{t}: {e}' for t, e in pairs if not t.startswith(RETRY_GROUP_TOPIC_PREFIX))}"
                for client, pairs in sorted(texts.items())
            )
        if evidence:
            yield Finding(
                "subscriptions",
                Severity.ERROR,
                f"group {group.name}",
                evidence,
                "give all clients of the group the same topics and expressions, or each its own group; see: "
                + mqadmin("consumerStatus", "-g", group.name),
            )


def unowned_queues(facts: ClusterFacts) -> Iterator[Finding]:
    """Find queues with messages that no client of a group consumes."""
    for group in facts.groups:
        waiting = {
            queue: offsets.broker_offset - offsets.consumer_offset
            for queue, offsets in group.progress.items()
            if offsets.broker_offset > offsets.consumer_offset
        }
        count = sum(waiting.values())
        if not waiting:
            continue
        if group.clients is None or not group.clients.connection_set:
            yield Finding(
                "unownedQueue",
                Severity.WARNING,
                f"group {group.name}",
                f"{_waiting_text(count)} in {counted(len(waiting), 'queue')}, and none of its clients is connected",
                "start a consumer, or if nobody needs the group: "
                + mqadmin("deleteSubGroup", "-g", group.name, "-c", _cluster(facts)),
            )
            continue
        silent = [each for each in group.clients.connection_set if each.client_id not in group.running]
        if silent and _shares_queues(group.clients):
            names = ", ".join(each.client_id for each in silent)
            yield Finding(
                "silentClient",
                Severity.WARNING,
                f"group {group.name}",
                f"{_waiting_text(count)}, and client {names} does not report its state",
                "if it hangs, restart it: its queues are not consumed while it stays connected; its address is "
                + ", ".join(each.client_addr for each in silent),
            )
        popped = {queue for queue, offsets in group.progress.items() if offsets.pop_in_flight is not None}
        yield from _unowned(group, {queue: lag for queue, lag in waiting.items() if queue not in popped})


def _shares_queues(clients: ConsumerConnection) -> bool:
    return clients.consume_type in _PASSIVE and clients.message_model is not MessageModel.BROADCASTING


def _waiting_text(count: int) -> str:
    return f"{counted(count, 'message')} {'waits' if count == 1 else 'wait'}"


def _unowned(group: GroupFacts, waiting: dict[MessageQueue, int]) -> Iterator[Finding]:
    """Find the queues without an owner in a group whose clients all say what they own."""
    clients = group.clients
    assert clients is not None
    if not _shares_queues(clients) or len(group.running) < len(clients.connection_set):
        return  # pulled or popped queues have no owner, and a client that is silent may own them
    owned = Counter(queue for info in group.running.values() for queue in info.mq_table)
    free = [queue for queue in waiting if queue.topic in clients.subscription_table and not owned[queue]]
    if free:
        yield Finding(
            "unownedQueue",
            Severity.ERROR,
            f"group {group.name}",
            f"no client owns {', '.join(map(_queue_text, free[:5]))}{', ...' if len(free) > 5 else ''}, "
            f"where {_waiting_text(sum(waiting[queue] for queue in free))}",
            "restart the clients to share the queues again; clients that see different brokers or name servers "
            f"leave queues out: {mqadmin('consumerProgress', '-g', group.name, '-s', 'true')}",
        )


def members_at_other_name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    """Find groups whose members use different name servers, and so may see different queues."""
    for group in facts.groups:
        seen: dict[tuple[str, ...], list[str]] = {}
        for client, info in group.running.items():
            text = info.properties.get("PROP_NAMESERVER_ADDR", "")
            addresses = tuple(sorted(part.strip() for part in text.split(";") if part.strip()))
            if addresses:
                seen.setdefault(addresses, []).append(client)
        if len(seen) > 1:
            each = "; ".join(f"{', '.join(sorted(clients))} ask {';'.join(names)}" for names, clients in seen.items())
            yield Finding(
                "nameServersOfMembers",
                Severity.WARNING,
                f"group {group.name}",
                f"its members use different name servers: {each}",
                f"start all with namesrvAddr={_all_name_servers(facts)}",
            )


def disks(facts: ClusterFacts) -> Iterator[Finding]:
    """Find disks near or above the watermarks of their brokers."""
    for broker in facts.brokers:
        ratio = _number(broker.runtime.get("commitLogDiskRatio"))
        if ratio is None:
            continue
        expires = _ratio(broker, "diskMaxUsedSpaceRatio", 75)
        forced = _ratio(broker, "diskSpaceCleanForciblyRatio", 85)
        rejects = _ratio(broker, "diskSpaceWarningLevelRatio", 90)
        if ratio < min(expires, forced, rejects - _NEAR):
            continue
        is_forced = broker.settings.get("cleanFileForciblyEnable", "true") == "true"
        used = f"its disk is {ratio:.0%} full: "
        if ratio >= rejects:
            used += f"above {rejects:.0%} it rejects sends"
        elif ratio >= forced and is_forced:
            used += f"above {forced:.0%} it removes messages before fileReservedTime has passed"
        else:
            used += f"above {expires:.0%} it removes expired files at once and not only at deleteWhen"
            used += f", above {forced:.0%} others too" if is_forced else ""
            used += f", and above {rejects:.0%} it rejects sends"
        hours = int(_number(broker.settings.get("fileReservedTime")) or _RESERVED_HOURS)
        less = max(1, hours // 2)
        keep = mqadmin("updateBrokerConfig", "-b", broker.address, "-k", "fileReservedTime", "-v", less)
        delete = mqadmin("deleteExpiredCommitLog", "-b", broker.address)
        remedy = "give it a larger disk"
        if less < hours:
            remedy += f"; or keep messages for {less} h in place of {hours} h, which removes all older ones: {keep}; "
            remedy += f"then: {delete}"
        severity = Severity.ERROR if ratio >= rejects else Severity.WARNING
        yield Finding("disk", severity, f"broker {_label(broker)}", used, remedy)


def _ratio(broker: BrokerFacts, setting: str, percent: int) -> float:
    return (_number(broker.settings.get(setting)) or percent) / 100


def replicas(facts: ClusterFacts) -> Iterator[Finding]:
    """Find slaves that are behind or not connected."""
    for broker in facts.brokers:
        if problem := broker.runtime.get("replicationProblem"):
            yield Finding(
                "replica",
                Severity.ERROR,
                f"broker {_label(broker)}",
                f"does not follow its master: {problem}",
                f"correct what it names; then see: {mqadmin('haStatus', '-b', broker.address)}",
            )
        if broker.replication is None or not broker.replication.master or broker.broker_id != MASTER_ID:
            continue
        status = broker.replication
        gap = int(_number(broker.settings.get("haMaxGapNotInSync")) or _MAX_GAP)
        for slave in status.ha_connection_info:
            if slave.diff >= gap or not slave.in_sync:
                yield Finding(
                    "replica",
                    Severity.ERROR,
                    f"broker {_label(broker)}",
                    f"its slave {slave.addr} is {slave.diff:,} bytes behind (in sync below {gap:,}), at "
                    f"{slave.transferred_byte_in_second:,} bytes a second",
                    mqadmin("haStatus", "-b", broker.address, "--watch", 2),
                )
        registered = [s for s in facts.brokers if s.name == broker.name and s.broker_id != MASTER_ID]
        if len(status.ha_connection_info) < len(registered):
            names = ", ".join(each.address for each in registered)
            yield Finding(
                "replica",
                Severity.ERROR,
                f"broker {_label(broker)}",
                f"of {counted(len(registered), 'registered slave')} ({names}), "
                f"{len(status.ha_connection_info)} copy its log",
                "check haMasterAddress of the slave and haListenPort of the master: "
                + mqadmin("haStatus", "-b", registered[0].address),
            )


def clocks(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose clock differs from that of this machine."""
    for broker in facts.brokers:
        if broker.skew_ms is not None and abs(broker.skew_ms) >= _SKEW_MS:
            side = "ahead of" if broker.skew_ms > 0 else "behind"
            yield Finding(
                "clock",
                Severity.WARNING,
                f"broker {_label(broker)}",
                f"its clock is {abs(broker.skew_ms) / 1000:.0f} s {side} that of this machine: delays, retention and "
                "resets by time are off by as much",
                "synchronise the clocks: timedatectl set-ntp true (then: timedatectl timesync-status)",
            )


def limits(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers near a limit of the system; only this project's brokers report them."""
    kinds = (
        ("openFiles", "open files", "raise LimitNOFILE of the service (systemctl edit mqbroker), and restart it"),
        ("mappedFiles", "mapped files", "sysctl -w vm.max_map_count=1048576"),
    )
    for broker in facts.brokers:
        for key, what, remedy in kinds:
            used, most = _number(broker.runtime.get(key)), _number(broker.runtime.get(f"{key}Limit"))
            if used is not None and most and used >= most * _NEAR_LIMIT:
                yield Finding(
                    "limit",
                    Severity.WARNING,
                    f"broker {_label(broker)}",
                    f"{used:,.0f} {what} of at most {most:,.0f}",
                    remedy,
                )


#: Checks, in the order of their findings.
CHECKS: Final[list[Callable[[ClusterFacts], Iterable[Finding]]]] = [
    name_servers,
    advertised_addresses,
    routes,
    subscriptions,
    unowned_queues,
    members_at_other_name_servers,
    disks,
    replicas,
    clocks,
    limits,
]


def _label(broker: BrokerFacts) -> str:
    return broker.name if broker.broker_id == MASTER_ID else f"{broker.name} (slave {broker.broker_id})"


def _all_name_servers(facts: ClusterFacts) -> str:
    return ";".join(each.address for each in facts.name_servers)


def _cluster(facts: ClusterFacts) -> str:
    return facts.brokers[0].cluster if facts.brokers else "DefaultCluster"


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
