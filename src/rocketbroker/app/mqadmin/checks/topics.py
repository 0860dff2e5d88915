"""Checks of the routes of topics that clients want."""

from collections.abc import Iterator
from difflib import get_close_matches

from rocketbroker.app.mqadmin.checks.cluster_facts import ClusterFacts
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.remedies import mqadmin, register_topic
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, PERM_WRITE


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
        f"set namesrvAddr={facts.all_name_servers} at its brokers, and restart them",
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
        names = ", ".join(broker.label for broker in having)
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
        mqadmin("updateTopic", "-c", facts.cluster, "-t", topic),
    )
