"""Sub-commands of ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

Each module is imported when its command is called: ``mqadmin topicList`` does not load what ``clusterList`` needs.
"""

from collections.abc import Callable

from rocketbroker.app.command_line import SubCommand

SUB_COMMANDS = {
    "clusterList": SubCommand("cluster_list", "List clusters and their brokers."),
    "topicList": SubCommand("topic_list", "List all topics."),
    "topicRoute": SubCommand("topic_route", "Show the route of a topic."),
    "updateTopic": SubCommand("update_topic", "Create or change a topic."),
    "deleteTopic": SubCommand("delete_topic", "Delete a topic from brokers and name servers."),
    "topicStatus": SubCommand("topic_status", "Show the offsets of a topic's queues."),
    "consumerProgress": SubCommand("consumer_progress", "Show the progress and lag of consumer groups."),
    "consumerStatus": SubCommand("consumer_status", "Show clients of a group and their subscriptions."),
    "getConsumerStatus": SubCommand("get_consumer_status", "Show the offsets of a group's clients."),
    "resetOffsetByTime": SubCommand("reset_offset_by_time", "Move a consumer group to a time or an offset."),
    "skipAccumulatedMessage": SubCommand("skip_accumulated_message", "Move a consumer group to the end of a topic."),
    "cloneGroupOffset": SubCommand("clone_group_offset", "Copy the offsets of one consumer group to another."),
    "queryMsgById": SubCommand("query_msg_by_id", "Show a message by its id."),
    "haStatus": SubCommand("ha_status", "Show the replication of masters and slaves."),
    "cleanExpiredCQ": SubCommand("clean_expired_cq", "Remove queue and index files of deleted messages."),
    "cleanUnusedTopic": SubCommand("clean_unused_topic", "Remove the queues of deleted topics."),
    "deleteExpiredCommitLog": SubCommand("delete_expired_commit_log", "Remove expired commit log files now."),
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a sub-command."""
    return SUB_COMMANDS[name].load(__package__)
