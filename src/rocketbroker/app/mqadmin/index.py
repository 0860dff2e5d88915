"""Summaries of the sub-commands by the module that has them, so that a start imports only the one that runs.

Written by ``bin/manual`` from the decorators of the sub-commands.
"""

from typing import Final

SUMMARIES: Final[dict[str, dict[str, str]]] = {
    "clusters": {
        "clusterList": "List clusters and their brokers.",
    },
    "brokers": {
        "haStatus": "Show the replication of masters and slaves.",
        "cleanExpiredCQ": "Remove queue and index files of deleted messages.",
        "cleanUnusedTopic": "Remove the queues of deleted topics.",
        "deleteExpiredCommitLog": "Remove expired commit log files now.",
    },
    "topics": {
        "topicList": "List all topics.",
        "topicRoute": "Show the route of a topic.",
        "updateTopic": "Create or change a topic.",
        "deleteTopic": "Delete a topic from brokers and name servers.",
        "topicStatus": "Show the offsets of a topic's queues.",
    },
    "groups": {
        "consumerProgress": "Show the progress and lag of consumer groups.",
        "popStatus": "Show the messages that a group has popped and not acknowledged, by queue.",
        "consumerStatus": "Show clients of a group and their subscriptions.",
        "setConsumeMode": "Let a group pull or pop a topic.",
        "updateSubGroup": "Create or change a consumer group.",
    },
    "offsets": {
        "getConsumerStatus": "Show the offsets of a group's clients.",
        "resetOffsetByTime": "Move a consumer group to a time or an offset.",
        "skipAccumulatedMessage": "Move a consumer group to the end of a topic.",
        "cloneGroupOffset": "Copy the offsets of one consumer group to another.",
    },
    "messages": {
        "queryMsgById": "Show a message by its id.",
    },
    "bench": {
        "bench": "Measure rates and latencies of sends and deliveries.",
    },
    "monitoring": {
        "grafana": "Print a Grafana board of the metrics of brokers and name servers, to import.",
        "alerts": "Print alert rules of Prometheus for the metrics of brokers and name servers.",
    },
    "top": {
        "top": "Watch rates, lag, clients and disks on a live screen.",
    },
}
