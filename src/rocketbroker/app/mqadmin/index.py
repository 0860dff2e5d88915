"""Summaries of the sub-commands by the module that has them, so that a start imports only the one that runs.

Written by ``bin/manual`` from the decorators of the sub-commands.
"""

from typing import Final

SUMMARIES: Final[dict[str, dict[str, str]]] = {
    "doctor": {
        "doctor": "Find what is wrong with a cluster, and what to do about it.",
    },
    "why": {
        "why": "Explain what became of a message in a consumer group.",
    },
    "clusters": {
        "clusterList": "List clusters and their brokers.",
    },
    "name_servers": {
        "updateKvConfig": "Set a value of the KV configuration.",
        "deleteKvConfig": "Delete a value of the KV configuration.",
        "wipeWritePerm": "Let producers send to other brokers.",
        "addWritePerm": "Let producers send to a broker again.",
    },
    "brokers": {
        "haStatus": "Show the replication of masters and slaves.",
        "brokerStatus": "Show the runtime statistics of brokers.",
        "cleanExpiredCQ": "Remove queue and index files of deleted messages.",
        "cleanUnusedTopic": "Remove the queues of deleted topics.",
        "deleteExpiredCommitLog": "Remove expired commit log files now.",
    },
    "settings": {
        "getBrokerConfig": "Show the settings of a broker (-b) or of all brokers of a cluster (-c).",
        "updateBrokerConfig": "Change a setting of brokers.",
        "getNamesrvConfig": "Show the settings of the name servers.",
        "updateNamesrvConfig": "Change a setting of all name servers.",
    },
    "topics": {
        "topicList": "List all topics.",
        "topicRoute": "Show the route of a topic.",
        "updateTopic": "Create or change a topic.",
        "deleteTopic": "Delete a topic from brokers and name servers.",
        "topicStatus": "Show the offsets of a topic's queues.",
        "updateTopicList": "Create or change the topics in a file.",
        "updateTopicPerm": "Change the permission of a topic.",
        "updateOrderConf": "Set, show or delete the order configuration of a topic.",
        "topicClusterList": "List the clusters that have a topic.",
        "allocateMQ": "Show how the queues of a topic would be shared among consumers.",
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
        "queryMsgByKey": "Find messages by a key.",
        "queryMsgByUniqueKey": "Find messages by the id that the producer gave them.",
        "queryMsgByOffset": "Show the message at an offset of a queue.",
        "queryMsgTraceById": "Show the traces of a message.",
        "queryCq": "Show entries of a consume queue.",
    },
    "statistics": {
        "brokerConsumeStats": "Show the progress of all groups of a broker.",
        "statsAll": "Show rates of topics and of their consumers.",
    },
    "bench": {
        "bench": "Measure rates and latencies of sends and deliveries.",
    },
    "clients": {
        "producer": "Show all producers that are connected to a broker.",
        "producerConnection": "Show the clients of a producer group.",
        "consumerConnection": "Show the clients of a consumer group, and its subscriptions.",
    },
    "dead_letters": {
        "resendDlq": "Send the dead letters of a group again.",
    },
    "exports": {
        "exportMetadata": "Write topics and consumer groups to a file.",
        "exportConfigs": "Write the main settings of a cluster to a file.",
        "exportMetrics": "Write the rates, sizes and client versions of a cluster to a file.",
    },
    "group_monitor": {
        "startMonitoring": "Report lag and stuck clients of all groups, each minute.",
    },
    "group_settings": {
        "updateSubGroupList": "Create or change consumer groups from a file.",
        "deleteSubGroup": "Delete a consumer group.",
        "getConsumerConfig": "Show the settings of a consumer group on each broker that has it.",
        "exportPopRecord": "Let brokers write their pop records from RocksDB to the log.",
    },
    "monitoring": {
        "grafana": "Print a Grafana board of the metrics of brokers and name servers, to import.",
        "alerts": "Print alert rules of Prometheus for the metrics of brokers and name servers.",
    },
    "policies": {
        "createAcl": "Allow or deny a user actions on resources.",
        "updateAcl": "Replace what a user may do with resources.",
        "deleteAcl": "Delete the policies of a user, for some resources or all.",
        "getAcl": "Show the policies of a user.",
        "listAcl": "List the policies of users.",
        "copyAcl": "Copy policies from a broker to another that has the users.",
    },
    "printing": {
        "printMsg": "Print the messages of a topic.",
        "printMsgByQueue": "Print the messages of a queue, or count them by tag.",
        "consumeMessage": "Print messages of a topic, a queue or from an offset on.",
    },
    "round_trips": {
        "sendMsgStatus": "Send messages to a broker and show the time of each.",
        "clusterRT": "Send messages to each broker and show the mean time.",
    },
    "sending": {
        "sendMessage": "Send a message.",
        "checkMsgSendRT": "Measure how long sends take.",
    },
    "tail": {
        "tail": "Follow a topic as it is written.",
    },
    "top": {
        "top": "Watch rates, lag, clients and disks on a live screen.",
    },
    "transfer": {
        "export": "Write the messages of topics to a file.",
    },
    "transfer_import": {
        "import": "Send the messages of an exported file.",
    },
    "users": {
        "createUser": "Create a user of access control, and ask for the password.",
        "updateUser": "Change the password, type or status of a user.",
        "deleteUser": "Delete a user and its policies.",
        "getUser": "Show type and status of a user.",
        "listUser": "List users with type and status.",
        "copyUser": "Copy users from a broker to another.",
    },
}
