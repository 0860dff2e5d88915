"""Checks of consumer groups and their members."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rocketbroker.app.mqadmin.checks.cluster_facts import ClusterFacts, GroupFacts
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.remedies import counted, mqadmin
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import LOGICAL_QUEUE_MOCK_BROKER_PREFIX

_PASSIVE: Final = (ConsumeType.CONSUME_PASSIVELY,)


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
                + mqadmin("deleteSubGroup", "-g", group.name, "-c", facts.cluster),
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
    # Clients own the logical queues of a static topic, and brokers report its physical ones.
    static = {queue.topic for queue in owned if queue.broker_name.startswith(LOGICAL_QUEUE_MOCK_BROKER_PREFIX)}
    topics = clients.subscription_table.keys() - static
    free = [queue for queue in waiting if queue.topic in topics and not owned[queue]]
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
                f"start all with namesrvAddr={facts.all_name_servers}",
            )


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
