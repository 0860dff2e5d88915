"""Command lines that ``mqadmin doctor`` and ``mqadmin why`` recommend: quoted, and for the same servers.

None of them may change more than the text beside it says: a sub-command that sets all settings of a topic or a group is
given all of them, as the broker has them.
"""

import shlex

import msgspec

from rocketbroker.app.mqadmin.named_clusters import CHOSEN, GIVEN_SERVERS
from rocketbroker.codec.remoting.bodies.topic_config import GroupRetryPolicy, SubscriptionGroupConfig, TopicConfig


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 message`` and ``1,200 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def mqadmin(sub_command: str, *words: object) -> str:
    """Return a command line, with ``--cluster``, TLS or ``-n`` as this command was given them."""
    chosen, given = CHOSEN.get(), GIVEN_SERVERS.get()
    before: list[object] = []
    for option, value in (("--cluster", chosen.cluster), ("--config", chosen.config), ("--ca-file", chosen.ca_file)):
        before += [option, value] if value is not None else []
    before += ["--tls"] if chosen.tls else []
    after = ["-n", given] if given is not None else []
    return shlex.join(str(word) for word in ["mqadmin", *before, sub_command, *words, *after])


def resume_group(address: str, config: SubscriptionGroupConfig) -> str:
    """Return the command that lets a group consume again at a broker, and keeps its other settings."""
    words: list[object] = ["-b", address, "-g", config.group_name, "-s", "true"]
    for option, is_set in (
        ("-m", config.consume_from_min_enable),
        ("-d", config.consume_broadcast_enable),
        ("-o", config.consume_message_orderly),
    ):
        words += [option, str(is_set).lower()]
    words += ["-q", config.retry_queue_nums, "-r", config.retry_max_times]
    words += ["-i", config.broker_id, "-w", config.which_broker_when_consume_slowly]
    words += ["-a", str(config.notify_consumer_ids_changed_enable).lower()]
    if config.group_retry_policy != GroupRetryPolicy():
        words += ["-p", msgspec.json.encode(config.group_retry_policy).decode()]
    return mqadmin("updateSubGroup", *words)


def register_topic(address: str, config: TopicConfig) -> str:
    """Return the command that lets a broker register a topic again, with the queues and permission that it has."""
    queues = ["-r", config.read_queue_nums, "-w", config.write_queue_nums]
    order = ["-o", "true"] if config.order else []
    return mqadmin("updateTopic", "-b", address, "-t", config.topic_name, *queues, "-p", config.perm, *order)
