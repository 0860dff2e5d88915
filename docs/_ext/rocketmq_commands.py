"""Page of the sub-commands of RocketMQ's mqadmin and their state here."""

from collections.abc import Collection, Iterator

from docs._ext.mqadmin_index import all_sub_commands
from docs._ext.request_codes import served_codes
from rocketbroker.codec.remoting.request_code import RequestCode

SUB_COMMANDS = all_sub_commands()

_INTRODUCTION = """\
# Commands of RocketMQ 5.5.0 and their state here

For operators who know `mqadmin`, `mqnamesrv` and `mqbroker` of Apache RocketMQ: find out which command to type. The
page is generated from the sub-commands of our `mqadmin` and from the requests that the servers answer.

`mqnamesrv` and `mqbroker` accept `-c`, `-n`, `-p` and `-m` as in RocketMQ. `mqshutdown` is not needed: send SIGTERM, or
press Ctrl-C. JVM settings have no counterpart.

- *ours*: a sub-command of our [mqadmin](../reference/mqadmin.md), with RocketMQ's option letters.
- *Apache's*: not one of ours, but our servers answer every request that Apache's `mqadmin` sends for it. Run Apache's
  tool from a host in `adminWhiteList` ([Security](../operations/security.md)).
- *no*: the servers do not answer the listed requests, or the command reads files that do not exist here.

"""

# Requests that Apache's tool sends for each sub-command, without those for routes, in the order of its help.
REQUESTS: dict[str, str] = {
    "updateTopic": "UPDATE_AND_CREATE_TOPIC PUT_KV_CONFIG",
    "updateTopicList": "UPDATE_AND_CREATE_TOPIC_LIST",
    "deleteTopic": "DELETE_TOPIC_IN_BROKER DELETE_TOPIC_IN_NAMESRV",
    "updateSubGroup": "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
    "updateSubGroupList": "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
    "setConsumeMode": "SET_MESSAGE_REQUEST_MODE",
    "deleteSubGroup": "DELETE_SUBSCRIPTIONGROUP DELETE_TOPIC_IN_BROKER",
    "updateBrokerConfig": "UPDATE_BROKER_CONFIG",
    "updateTopicPerm": "UPDATE_AND_CREATE_TOPIC",
    "topicRoute": "GET_ROUTEINFO_BY_TOPIC",
    "topicStatus": "GET_TOPIC_STATS_INFO",
    "topicClusterList": "GET_BROKER_CLUSTER_INFO",
    "addBroker": "ADD_BROKER",
    "removeBroker": "REMOVE_BROKER",
    "resetMasterFlushOffset": "RESET_MASTER_FLUSH_OFFSET",
    "brokerStatus": "GET_BROKER_RUNTIME_INFO",
    "queryMsgById": "VIEW_MESSAGE_BY_ID QUERY_MESSAGE CONSUME_MESSAGE_DIRECTLY GET_CONSUMER_RUNNING_INFO",
    "queryMsgByKey": "QUERY_MESSAGE",
    "queryMsgByUniqueKey": "QUERY_MESSAGE CONSUME_MESSAGE_DIRECTLY GET_CONSUMER_RUNNING_INFO",
    "queryMsgByOffset": "PULL_MESSAGE",
    "queryMsgTraceById": "QUERY_MESSAGE",
    "printMsg": "GET_MAX_OFFSET GET_MIN_OFFSET SEARCH_OFFSET_BY_TIMESTAMP PULL_MESSAGE",
    "printMsgByQueue": "GET_MAX_OFFSET GET_MIN_OFFSET SEARCH_OFFSET_BY_TIMESTAMP PULL_MESSAGE",
    "sendMsgStatus": "SEND_MESSAGE_V2",
    "brokerConsumeStats": "GET_BROKER_CONSUME_STATS",
    "producerConnection": "GET_PRODUCER_CONNECTION_LIST",
    "consumerConnection": "GET_CONSUMER_CONNECTION_LIST",
    "consumerProgress": "GET_CONSUME_STATS GET_CONSUMER_CONNECTION_LIST GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
    "consumerStatus": "GET_CONSUMER_CONNECTION_LIST GET_CONSUMER_RUNNING_INFO",
    "cloneGroupOffset": "GET_CONSUME_STATS UPDATE_CONSUMER_OFFSET",
    "producer": "GET_ALL_PRODUCER_INFO",
    "clusterList": "GET_BROKER_CLUSTER_INFO GET_BROKER_RUNTIME_INFO",
    "topicList": "GET_ALL_TOPIC_LIST_FROM_NAMESERVER GET_BROKER_CLUSTER_INFO QUERY_TOPIC_CONSUME_BY_WHO",
    "updateKvConfig": "PUT_KV_CONFIG",
    "deleteKvConfig": "DELETE_KV_CONFIG",
    "wipeWritePerm": "WIPE_WRITE_PERM_OF_BROKER",
    "addWritePerm": "ADD_WRITE_PERM_OF_BROKER",
    "resetOffsetByTime": "INVOKE_BROKER_TO_RESET_OFFSET",
    "skipAccumulatedMessage": "INVOKE_BROKER_TO_RESET_OFFSET",
    "updateOrderConf": "PUT_KV_CONFIG GET_KV_CONFIG DELETE_KV_CONFIG",
    "cleanExpiredCQ": "CLEAN_EXPIRED_CONSUMEQUEUE",
    "deleteExpiredCommitLog": "DELETE_EXPIRED_COMMITLOG",
    "cleanUnusedTopic": "CLEAN_UNUSED_TOPIC",
    "startMonitoring": "GET_CONSUME_STATS GET_CONSUMER_CONNECTION_LIST GET_CONSUMER_RUNNING_INFO PULL_MESSAGE",
    "statsAll": "GET_ALL_TOPIC_LIST_FROM_NAMESERVER QUERY_TOPIC_CONSUME_BY_WHO VIEW_BROKER_STATS_DATA",
    "allocateMQ": "GET_ROUTEINFO_BY_TOPIC",
    "checkMsgSendRT": "SEND_MESSAGE_V2",
    "clusterRT": "GET_BROKER_CLUSTER_INFO SEND_MESSAGE_V2",
    "getNamesrvConfig": "GET_NAMESRV_CONFIG",
    "updateNamesrvConfig": "UPDATE_NAMESRV_CONFIG",
    "getBrokerConfig": "GET_BROKER_CONFIG",
    "getConsumerConfig": "GET_BROKER_CLUSTER_INFO GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "queryCq": "QUERY_CONSUME_QUEUE",
    "sendMessage": "SEND_MESSAGE_V2",
    "consumeMessage": "GET_MAX_OFFSET GET_MIN_OFFSET SEARCH_OFFSET_BY_TIMESTAMP PULL_MESSAGE",
    "updateStaticTopic": "UPDATE_AND_CREATE_STATIC_TOPIC",
    "remappingStaticTopic": "UPDATE_AND_CREATE_STATIC_TOPIC",
    "exportMetadata": "GET_ALL_TOPIC_CONFIG GET_ALL_SUBSCRIPTIONGROUP_CONFIG GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
    "exportConfigs": "GET_BROKER_CLUSTER_INFO GET_BROKER_CONFIG",
    "exportMetrics": "GET_BROKER_RUNTIME_INFO GET_BROKER_CONFIG GET_CONSUMER_CONNECTION_LIST VIEW_BROKER_STATS_DATA",
    "exportMetadataInRocksDB": "",
    "exportPopRecord": "POP_ROLLBACK",
    "haStatus": "GET_BROKER_HA_STATUS",
    "getSyncStateSet": "CONTROLLER_GET_SYNC_STATE_DATA",
    "getBrokerEpoch": "GET_BROKER_EPOCH_CACHE",
    "getControllerMetaData": "CONTROLLER_GET_METADATA_INFO",
    "getControllerConfig": "GET_CONTROLLER_CONFIG",
    "updateControllerConfig": "UPDATE_CONTROLLER_CONFIG",
    "electMaster": "CONTROLLER_ELECT_MASTER",
    "cleanBrokerMetadata": "CLEAN_BROKER_DATA",
    "dumpCompactionLog": "",
    "getColdDataFlowCtrInfo": "GET_COLD_DATA_FLOW_CTR_INFO",
    "updateColdDataFlowCtrGroupConfig": "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
    "removeColdDataFlowCtrGroupConfig": "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
    "setCommitLogReadAheadMode": "SET_COMMITLOG_READ_MODE",
    "createUser": "AUTH_CREATE_USER",
    "updateUser": "AUTH_UPDATE_USER",
    "deleteUser": "AUTH_DELETE_USER",
    "getUser": "AUTH_GET_USER",
    "listUser": "AUTH_LIST_USER",
    "copyUser": "AUTH_LIST_USER AUTH_CREATE_USER",
    "createAcl": "AUTH_CREATE_ACL",
    "updateAcl": "AUTH_UPDATE_ACL",
    "deleteAcl": "AUTH_DELETE_ACL",
    "getAcl": "AUTH_GET_ACL",
    "listAcl": "AUTH_LIST_ACL",
    "copyAcl": "AUTH_LIST_ACL AUTH_CREATE_ACL",
    "rocksDBConfigToJson": "EXPORT_ROCKSDB_CONFIG_TO_JSON",
    "checkRocksdbCqWriteProgress": "CHECK_ROCKSDB_CQ_WRITE_PROGRESS",
    "switchTimerEngine": "SWITCH_TIMER_ENGINE",
    "getBrokerLiteInfo": "GET_BROKER_LITE_INFO",
    "getParentTopicInfo": "GET_PARENT_TOPIC_INFO",
    "getLiteTopicInfo": "GET_LITE_TOPIC_INFO",
    "getLiteClientInfo": "GET_LITE_CLIENT_INFO",
    "getLiteGroupInfo": "GET_LITE_GROUP_INFO",
    "triggerLiteDispatch": "TRIGGER_LITE_DISPATCH",
}


def state_of(name: str, served: Collection[int]) -> str:
    """Return the state of a sub-command: ours, works with Apache's tool, or does not work."""
    if name in SUB_COMMANDS:
        return f"[ours](../reference/mqadmin.md#{name.lower()})"
    codes = [RequestCode[word] for word in REQUESTS[name].split()]
    if missing := [f"{code.name} ({code.value})" for code in codes if code not in served]:
        return f"no: {', '.join(missing)}"
    return "Apache's" if codes else "no: the files it reads do not exist here"


def render() -> str:
    """Return the whole page."""
    return _INTRODUCTION + "\n".join(_rows())


def _rows() -> Iterator[str]:
    served = served_codes()
    yield "| sub-command | state |\n|---|---|"
    for name in REQUESTS:
        yield f"| `{name}` | {state_of(name, served)} |"
    own = ", ".join(f"`{name}`" for name in sorted(SUB_COMMANDS) if name not in REQUESTS)
    yield f"\nOnly in our `mqadmin`: {own}.\n"
