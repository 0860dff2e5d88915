"""Commands that mqadmin recommends: quoted, complete, and for the servers that were asked."""

from pathlib import Path

from rocketbroker.app.mqadmin.named_clusters import CHOSEN, GIVEN_SERVERS, Chosen
from rocketbroker.app.mqadmin.remedies import mqadmin, register_topic, resume_group
from rocketbroker.codec.remoting.bodies.topic_config import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    TopicConfig,
)


def test_names_are_quoted_for_a_shell():
    assert mqadmin("doctor", "-t", "a|b") == "mqadmin doctor -t 'a|b'"


def test_the_servers_are_those_of_the_command_line():
    GIVEN_SERVERS.set("h:1;h:2")
    assert mqadmin("doctor") == "mqadmin doctor -n 'h:1;h:2'"
    GIVEN_SERVERS.set(None)
    CHOSEN.set(Chosen("prod", Path("my clusters"), True))
    assert mqadmin("doctor") == "mqadmin --cluster prod --config 'my clusters' --tls doctor"


def test_a_group_keeps_its_settings():
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy([1000]))
    config = SubscriptionGroupConfig("G", consume_enable=False, retry_queue_nums=2, group_retry_policy=policy)
    command = resume_group("h:1", config)
    assert " -q 2 -r 16 " in command
    assert """-p '{"type":"CUSTOMIZED",""" in command
    assert "[1000]" in command


def test_a_topic_keeps_its_queues_and_permission():
    command = register_topic("h:1", TopicConfig("T", 24, 12, 4, order=True))
    assert command == "mqadmin updateTopic -b h:1 -t T -r 24 -w 12 -p 4 -o true"
