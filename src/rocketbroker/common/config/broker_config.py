"""Settings of the broker (org.apache.rocketmq.common.BrokerConfig)."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from rocketbroker.common.config.fields import (
    DAY_MS,
    HOST_WORDS,
    HOT,
    HOT_IMPORTANT,
    HOUR_MS,
    LINE_WORDS,
    MINUTE_MS,
    PORT_MAX,
    URL_HOST_WORDS,
    URL_PATH_WORDS,
    ConfigModel,
    Flag,
    Host,
    Line,
    OptionalPath,
    Text,
    Trait,
    UrlHost,
    UrlPath,
    Whole,
    is_address,
    millis,
    setting,
    size,
    strip,
    whole,
)
from rocketbroker.common.config.hosts import local_address, local_name
from rocketbroker.common.config.log_settings import BrokerLogSettings
from rocketbroker.common.config.metrics_settings import MetricsPortSettings
from rocketbroker.common.config.transport_config import BROKER_PORT


class ClientLimits(ConfigModel):
    """Limits of the state that clients keep in the broker, and of single requests."""

    max_heartbeat_size: Whole = setting(
        262_144,
        "Maximum size of a heartbeat, and of the subscriptions of a client in all its groups; a larger heartbeat is "
        "rejected with INVALID_PARAMETER.",
        size(4_096, 4_194_304, hot=True, own=True),
    )
    max_groups_per_client: Whole = setting(
        512,
        "Maximum number of producer and consumer groups of a client; a heartbeat with more is rejected with "
        "INVALID_PARAMETER.",
        whole(8, 10_000, hot=True, own=True),
    )
    max_subscriptions_per_client: Whole = setting(
        1_024,
        "Maximum number of subscriptions of a client in all its groups; a heartbeat with more is rejected with "
        "INVALID_PARAMETER.",
        whole(16, 100_000, hot=True, own=True),
    )
    max_client_id_length: Whole = setting(
        1_024,
        "Maximum length of the clientID in a heartbeat; a longer one is rejected with INVALID_PARAMETER.",
        whole(64, 65_536, "characters", hot=True, own=True),
    )
    max_auto_create_group_nums: Whole = setting(
        10_000,
        "Number of consumer groups above which clients create no group; administrators still can.",
        whole(1, 1_000_000, hot=True, own=True),
    )
    max_entries_per_answer: Whole = setting(
        65_536,
        "Maximum number of queues or clients in an answer to an administrator; a request for more is rejected with "
        "SYSTEM_ERROR.",
        whole(1_024, 10_000_000, hot=True, own=True),
    )
    max_calls_per_consumer: Whole = setting(
        16,
        "Maximum number of unanswered requests of administrators to a consumer (CONSUME_MESSAGE_DIRECTLY, "
        "GET_CONSUMER_RUNNING_INFO); more are rejected with SYSTEM_BUSY.",
        whole(1, 10_000, hot=True, own=True),
    )
    max_waiting_queries: Whole = setting(
        256,
        "Maximum number of concurrent queries by key, id and time; more are rejected with SYSTEM_BUSY. One address "
        "gets as many as it leaves to others.",
        whole(1, 100_000, hot=True, own=True),
    )
    max_queues_per_lock_request: Whole = setting(
        4_096,
        "Maximum number of queues in a LOCK_BATCH_MQ or UNLOCK_BATCH_MQ; one with more is rejected with "
        "INVALID_PARAMETER.",
        whole(16, 65_536, hot=True, own=True),
    )
    max_queue_locks: Whole = setting(
        100_000,
        "Maximum number of queues that orderly consumers hold locked; of the rest, an address of clients gets no more "
        "than it leaves to others. A queue beyond it is left out of the answer, and the consumer asks again.",
        whole(1_000, 10_000_000, hot=True, own=True),
    )
    max_consumer_offset_nums: Whole = setting(
        500_000,
        "Maximum number of consumer offsets, committed and pulled, one for each group and queue; the first offset of "
        "another queue is rejected with SYSTEM_ERROR.",
        whole(1_000, 100_000_000, hot=True, own=True),
    )
    max_subscription_length: Whole = setting(
        16_384,
        "Maximum length of a topic subscription in a pull or heartbeat; a longer one is rejected with "
        "SUBSCRIPTION_PARSE_FAILED.",
        whole(1_024, 1_048_576, "characters", hot=True, own=True),
    )
    max_subscription_tags: Whole = setting(
        1_024,
        "Maximum number of tags in a subscription; one with more is rejected with SUBSCRIPTION_PARSE_FAILED.",
        whole(128, 65_536, hot=True, own=True),
    )
    max_held_pulls: Whole = setting(
        100_000,
        "Maximum number of held pulls; more are rejected with SYSTEM_BUSY. One address gets as many as it leaves to "
        "others. A pull that filters by 4 tags counts as two, by 8 as three, and a pull that carries an SQL92 "
        "expression as 33.",
        whole(1, 10_000_000, hot=True, own=True),
    )
    max_held_pulls_per_connection: Whole = setting(
        16_384,
        "Maximum number of held pulls of one connection, counted as for maxHeldPulls.",
        whole(1, 10_000_000, hot=True, own=True),
    )
    max_suspend_timeout_millis: Whole = setting(
        60_000,
        "Longest time for which a pull or a pop is held, whatever time it asks for (suspendTimeoutMillis, pollTime); "
        "clients ask for 15 to 30 s, and ask again.",
        millis(1_000, 86_400_000, hot=True, own=True),
    )
    pop_polling_size: Whole = setting(
        1_024,
        "Maximum number of held pops of a group for one queue of a topic, and for all its queues together; more are "
        "answered POLLING_FULL.",
        whole(1, 1_000_000, hot=True),
    )
    max_pop_polling_size: Whole = setting(
        100_000,
        "Maximum number of held pops, counted as for maxHeldPulls; more are answered POLLING_FULL. One address gets as "
        "many as it leaves to others.",
        whole(1, 10_000_000, hot=True),
    )
    consumer_send_msg_back_bytes_per_second: Whole = setting(
        1_048_576,
        "Message bytes per second that consumers may send back without having received them on their connection; "
        "unused bytes of the last 10 s carry over. More are rejected with SYSTEM_BUSY, and clients retry or keep "
        "them.",
        whole(1, 1 << 40, "bytes/s", hot=True, own=True),
    )
    max_filter_length_per_client: Whole = setting(
        4_200,
        "Maximum total length of SQL92 filters in a heartbeat, 12 added for each; a heartbeat with more is rejected "
        "with INVALID_PARAMETER.",
        whole(256, 1_048_576, "characters", hot=True, own=True),
    )
    max_consumer_filter_nums: Whole = setting(
        10_000,
        "Maximum number of SQL92 filters of groups. New filters replace those of groups without clients; beyond that "
        "no filter is registered.",
        whole(100, 1_000_000, hot=True, own=True),
    )


MessageRequestMode = Annotated[Literal["PULL", "POP"], BeforeValidator(strip)]


class LoadBalancing(ConfigModel):
    """Assignment of queues to consumers by the broker (QUERY_ASSIGNMENT)."""

    server_load_balancer_enable: Flag = setting(
        True, "Divide the queues of a topic among the clients of a group. If false, each client gets all.", HOT
    )
    default_message_request_mode: MessageRequestMode = setting(
        "PULL", "PULL or POP, for groups and topics without a mode set by mqadmin setConsumeMode.", HOT
    )
    default_pop_share_queue_num: Whole = setting(
        -1,
        "Number of clients whose queues a client gets besides its own, with defaultMessageRequestMode=POP; 0 or less: "
        "all queues.",
        whole(-1, 1_000_000, hot=True),
    )
    load_balance_poll_name_server_interval: Whole = setting(
        30_000,
        "Time for which the queues of a topic are assigned before the name servers are asked for them again.",
        millis(100, HOUR_MS, hot=True),
    )


class ActingSettings(ConfigModel):
    """Heartbeats of brokers, and what an acting master does."""

    enable_slave_acting_master: Flag = setting(
        False,
        "Let the slave with the smallest brokerId act as read-only master while no master is registered. Set it on "
        "master and slaves, and supportActingMaster=true on the name servers.",
    )
    enable_remote_escape: Flag = setting(
        False,
        "Let an acting master send delayed messages and timer messages that are due, and open transactions, to another "
        "master of the cluster; otherwise they wait for the master.",
    )
    skip_pre_online: Flag = setting(
        False, "Start a master without taking over the progress of its slaves first (enableSlaveActingMaster=true)."
    )
    broker_heartbeat_interval: Whole = setting(
        1_000, "Interval of heartbeats to the name servers if enableSlaveActingMaster=true.", millis(100, MINUTE_MS)
    )
    broker_not_active_timeout_millis: Whole = setting(
        10_000,
        "Time without a heartbeat after which name servers forget this broker if enableSlaveActingMaster=true.",
        millis(1_000, 10 * MINUTE_MS),
    )
    sync_broker_member_group_period: Whole = setting(
        1_000,
        "Interval at which a slave asks the name servers for the live brokers of its name if "
        "enableSlaveActingMaster=true.",
        millis(100, MINUTE_MS),
    )


class GrpcSettings(ConfigModel):
    """The gRPC port of the 5.x SDKs, in the broker's process."""

    grpc_server_enable: Flag = setting(False, "Serve the 5.x SDKs in this process, on grpcServerPort.", Trait(own=True))
    grpc_server_port: Whole = setting(8081, "Port of the 5.x SDKs, 0 for a free one.", whole(0, PORT_MAX, own=True))
    proxy_config_path: OptionalPath = setting(
        "", "File with further settings of this port, an rmq-proxy.json.", Trait(takes="a path", own=True)
    )


class MetricsSettings(MetricsPortSettings):
    """Labels, limits and groups of metrics."""

    metrics_otel_cardinality_limit: Whole = setting(
        50_000,
        "Maximum number of label sets of one metric; the others are one sample with otel_metric_overflow=true.",
        whole(2, 10_000_000, hot=True),
    )
    enable_stats_metrics: Flag = setting(True, "Publish queue lengths and numbers of topics and groups.", HOT)
    enable_request_metrics: Flag = setting(True, "Publish messages in and out, and times of changes to topics.", HOT)
    enable_connection_metrics: Flag = setting(True, "Publish connections of producers and consumers.", HOT)
    enable_lag_and_dlq_metrics: Flag = setting(True, "Publish lag of consumers and dead letters.", HOT)
    use_static_subscription: Flag = setting(
        False,
        "Publish the lag of groups whose settings name their topics (subscriptionDataSet), online or not, instead of "
        "groups that are online.",
        HOT,
    )
    estimate_accumulation: Flag = setting(
        True,
        "Count in the lag of a group that filters by tags only the messages that it wants, estimated from a sample; "
        "otherwise all messages count, as they do for filters by SQL92.",
        HOT,
    )
    enable_notify_before_pop_calculate_lag: Flag = setting(
        True,
        "Have a held pop of each group run again before its lag is read, so that it gets past messages that its filter "
        "leaves out.",
        HOT,
    )
    enable_transaction_metrics: Flag = setting(True, "Publish transactions.", HOT)
    enable_remoting_metrics: Flag = setting(True, "Publish times of requests.", HOT)
    enable_message_store_metrics: Flag = setting(True, "Publish the store and the timer.", HOT)
    enable_pop_metrics: Flag = setting(True, "Publish POP.", HOT)


class PopSettings(ConfigModel):
    """POP consumption."""

    pop_ck_max_buffer_size: Whole = setting(
        200_000,
        "Maximum number of open check points, one for each pop of a queue; a pop beyond it is answered POLLING_FULL. "
        "Each takes 550 to 1,850 bytes of memory.",
        whole(1_000, 100_000_000, hot=True),
    )
    pop_from_retry_probability: Whole = setting(
        20,
        "Share of pops that read the group's retry topic before the topic itself.",
        whole(0, 100, "percent", hot=True),
    )
    pop_from_retry_probability_for_priority: Whole = setting(
        0,
        "The same for pops of a topic with message.type=PRIORITY: 0 makes retries the lowest priority, 100 the "
        "highest.",
        whole(0, 100, "percent", hot=True),
    )
    priority_order_asc: Flag = setting(
        True,
        "Read the queue of the largest number first in a topic with message.type=PRIORITY; false: queue 0 first.",
        HOT,
    )
    use_separate_retry_queue: Flag = setting(
        False,
        "Let a message return to the queue of its own number in the retry topic of POP, which then has as many queues "
        "as the topic.",
        HOT,
    )
    enable_retry_topic_v2: Flag = setting(
        False, "Name retry topics of POP %RETRY%<group>+<topic> instead of %RETRY%<group>_<topic>.", HOT
    )
    retrieve_message_from_pop_retry_topic_v1: Flag = setting(
        True, "Also read retry topics of the old name if enableRetryTopicV2=true.", HOT
    )
    pop_response_return_actual_retry_topic: Flag = setting(
        False, "Answer a pop with messages of the retry topic as they are stored, instead of under their topic.", HOT
    )
    init_pop_offset_by_check_msg_in_mem: Flag = setting(
        True,
        "Let a new group that pops from the end begin at the first message while a queue's first message is in memory.",
        HOT,
    )
    enable_pop_message_threshold: Flag = setting(
        False, "Pop no more of a queue while popInflightMessageThreshold messages of it are in flight.", HOT
    )
    pop_inflight_message_threshold: Whole = setting(
        10_000,
        "Messages of one group and queue in flight if enablePopMessageThreshold=true.",
        whole(1, 100_000_000, hot=True),
    )
    pop_revive_skip_if_group_absent: Flag = setting(
        True, "Drop messages whose invisible time is over if their group is gone.", HOT
    )


NAME_MAX = 127
_NAME = re.compile(r"[%|a-zA-Z0-9_.:-]+\Z")
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_ADDRESS_LIST_MAX = 4_096


def _check_namesrv_addr(value: str) -> str:
    """Check `host:port`, or several joined by `;` as in RocketMQ's NAMESRV_ADDR; empty means no address."""
    if len(value) > _ADDRESS_LIST_MAX:
        raise ValueError("too long")
    if value and not all(is_address(address) for address in value.split(";")):
        raise ValueError("not an address list")
    return value


def _check_name(value: str) -> str:
    # The broker and the cluster have topics, and so directories, of their name.
    if not 0 < len(value) <= NAME_MAX or not _NAME.match(value) or not value.strip("."):
        raise ValueError("not a name")
    return value


def _check_topic(value: str) -> str:
    if not 0 < len(value) <= NAME_MAX or not _TOPIC.match(value):
        raise ValueError("not a topic name")
    return value


def _check_permission(value: int) -> int:
    if value not in (0, 2, 4, 6):
        raise ValueError("not a permission")
    return value


AddressList = Annotated[Text, AfterValidator(_check_namesrv_addr)]
Name = Annotated[Text, AfterValidator(_check_name)]
TopicName = Annotated[Text, AfterValidator(_check_topic)]
Permission = Annotated[Whole, AfterValidator(_check_permission)]

_OWN_ADDRESS = "bindAddress if it is one address, else the host's"
_NAME_WORDS = "1 to 127 of the characters a-z A-Z 0-9 _ - . : % |, not dots alone"
_TOPIC_WORDS = "1 to 127 of the characters a-z A-Z 0-9 _ - % |"


class BrokerConfig(
    ClientLimits, LoadBalancing, ActingSettings, PopSettings, GrpcSettings, MetricsSettings, BrokerLogSettings
):
    """Identity of the broker, its registration and its treatment of clients."""

    namesrv_addr: AddressList = setting(
        "",
        "Name servers to register with; the default is the environment variable NAMESRV_ADDR.",
        Trait(important=True, takes="host:port, several joined by ';'", shown_default="$NAMESRV_ADDR"),
    )
    fetch_namesrv_addr_by_address_server: Flag = setting(
        False,
        "Ask an address server over HTTP for the name servers when namesrvAddr is empty; needs the extra http.",
        Trait(important=True),
    )
    fetch_name_srv_addr_by_dns_lookup: Flag = setting(
        False,
        "Register with every address that the DNS has for the host names of namesrvAddr, and look them up again every "
        "updateNameServerAddrPeriod.",
        Trait(important=True),
    )
    rmq_address_server_domain: UrlHost = setting(
        "jmenv.tbsite.net",
        "Host of the address server, with :port unless the port is 8080, and with https:// before it for TLS.",
        Trait(takes=URL_HOST_WORDS),
    )
    rmq_address_server_sub_group: UrlPath = setting(
        "nsaddr", "Last part of the address server's path /rocketmq/<sub group>.", Trait(takes=URL_PATH_WORDS)
    )
    fetch_namesrv_addr_interval: Whole = setting(
        10_000,
        "Interval at which the address server or the DNS is asked while no name server is known.",
        millis(100, HOUR_MS),
    )
    update_name_server_addr_period: Whole = setting(
        120_000, "Interval at which the address server or the DNS is asked again.", millis(1_000, HOUR_MS)
    )
    broker_name: Name = setting(
        local_name,
        "Name of the broker; a master and its slaves share it.",
        Trait(takes=_NAME_WORDS, shown_default="the host's name"),
    )
    broker_cluster_name: Name = setting("DefaultCluster", "Cluster the broker belongs to.", Trait(takes=_NAME_WORDS))
    broker_id: Whole = setting(
        0, "Number of the broker among those of its name: 0 for the master.", whole(0, 2**31 - 1)
    )
    broker_ip1: Host = setting(
        local_address,
        "Address that clients connect to, as registered with the name servers.",
        Trait(hot=True, important=True, takes=HOST_WORDS, shown_default=_OWN_ADDRESS),
        name="brokerIP1",
    )
    broker_ip2: Host = setting(
        local_address,
        "Address that slaves connect to, as registered with the name servers.",
        Trait(takes=HOST_WORDS, shown_default=_OWN_ADDRESS),
        name="brokerIP2",
    )
    listen_port: Whole = setting(
        BROKER_PORT,
        "Port that clients connect to, as registered with the name servers. A change at run time changes the "
        "registered port only; the broker keeps its listening port.",
        whole(0, PORT_MAX, hot=True, important=True, shown_default="10911"),
    )
    broker_permission: Permission = setting(
        6,
        "Permissions of clients on this broker: 4 read, 2 write, 6 both, 0 neither.",
        Trait(hot=True, takes="0, 2, 4 or 6"),
    )
    default_topic_queue_nums: Whole = setting(
        8, "Queues of TBW102, the maximum for a topic created by its first message.", whole(1, 1_024)
    )
    auto_create_topic_enable: Flag = setting(
        True, "Create a topic when its first message arrives (TBW102).", HOT_IMPORTANT
    )
    auto_create_subscription_group: Flag = setting(
        True, "Create a consumer group when its first client connects.", HOT_IMPORTANT
    )
    enable_create_sys_group: Flag = setting(
        True,
        "Create groups named CID_RMQ_SYS_... when a broker or tool uses them, even if "
        "autoCreateSubscriptionGroup=false.",
        HOT,
    )
    cluster_topic_enable: Flag = setting(True, "Create a topic with the name of the cluster.")
    broker_topic_enable: Flag = setting(True, "Create a topic with the name of the broker.")
    recall_message_enable: Flag = setting(False, "Let producers cancel timer messages (RECALL_MESSAGE).", HOT)
    allow_recall_when_broker_not_writeable: Flag = setting(
        True, "Let producers cancel timer messages even if brokerPermission lacks write.", HOT
    )
    msg_trace_topic_name: TopicName = setting(
        "RMQ_SYS_TRACE_TOPIC", "Topic of message traces.", Trait(important=True, takes=_TOPIC_WORDS)
    )
    trace_topic_enable: Flag = setting(False, "Create the trace topic at start.", Trait(important=True))
    region_id: Line = setting(
        "DefaultRegion", "Region, stored in each message as MSG_REGION.", Trait(hot=True, takes=LINE_WORDS)
    )
    trace_on: Flag = setting(True, "Value of TRACE_ON, stored in each message; true makes clients trace.", HOT)
    reject_pull_consumer_enable: Flag = setting(
        False,
        "Reject consumers that pull on their own (CONSUME_ACTIVELY): they are left out of heartbeats, and their pulls "
        "are answered SUBSCRIPTION_NOT_EXIST. Tools can still pull.",
        HOT,
    )
    notify_consumer_ids_changed_enable: Flag = setting(
        True,
        "Notify the members of a group when others join or leave. If false, they notice at their next rebalance, 20 s "
        "later at most.",
        HOT,
    )
    enable_register_producer: Flag = setting(
        True,
        "Register producers by their heartbeats. If false, producers that are not registered yet are left out while "
        "rejectTransactionMessage=true.",
        HOT,
    )
    disable_consume_if_consumer_read_slowly: Flag = setting(
        False,
        "Every 3 minutes take consumeEnable from online groups that are more than consumerFallbehindThreshold behind.",
        HOT,
    )
    consumer_fallbehind_threshold: Whole = setting(
        17_179_869_184,
        "Bytes of the log after a group's committed offset if disableConsumeIfConsumerReadSlowly=true.",
        size(0, 1 << 62, hot=True),
    )
    start_accept_send_request_time_stamp: Whole = setting(
        0, "Time before which sends are rejected with SYSTEM_ERROR, in ms since 1970.", millis(0, 2**63 - 1)
    )
    validate_system_topic_when_update_topic: Flag = setting(
        True, "Reject changes to system topics. If false, administrators can change them, but not delete them.", HOT
    )
    clear_retry_topic_when_delete_topic: Flag = setting(True, "Delete the retry topics of POP with their topic.", HOT)
    config_black_list: Line = setting(
        "configBlackList;brokerConfigPath",
        "Settings that nobody can change at run time, besides those that are not hot.",
        Trait(takes="names joined by ';', at most 255 characters"),
    )
    lite_pull_message_enable: Flag = setting(True, "Serve LITE_PULL_MESSAGE.", HOT)
    slave_read_enable: Flag = setting(
        False,
        "On a slave: serve pulls. On a master: suggest to consumers of messages that are further back than "
        "accessMessageInMemoryMaxRatio to pull from the group's whichBrokerWhenConsumeSlowly.",
        HOT,
    )
    enable_property_filter: Flag = setting(
        False, "Let consumers filter by SQL92 on message properties; otherwise reject such consumers.", HOT
    )
    filter_support_retry: Flag = setting(
        False,
        "Filter messages of a retry topic by the group's filter for their original topic when the consumer uses SQL92.",
        HOT,
    )
    filter_data_clean_time_span: Whole = setting(
        DAY_MS,
        "Time for which config/consumerFilter.json keeps the filter of a group without clients.",
        millis(0, 365 * DAY_MS, hot=True),
    )
    long_polling_enable: Flag = setting(
        True, "Hold a pull that finds no message for the time that it asks for (suspendTimeoutMillis).", HOT
    )
    short_polling_time_mills: Whole = setting(
        1_000, "Time for which a pull is held when longPollingEnable=false.", millis(1, MINUTE_MS, hot=True)
    )
    use_server_side_reset_offset: Flag = setting(
        True,
        "Reset offsets in the broker, for online and offline consumers. If false, clients reset their own offsets, and "
        "a reset of a group without clients is rejected.",
        HOT,
    )
    store_reply_message_enable: Flag = setting(True, "Store replies after they were forwarded to the requester.", HOT)
    enable_mixed_message_type: Flag = setting(False, "Allow topics with message.type=MIXED.", HOT)
    send_thread_pool_queue_capacity: Whole = setting(
        10_000,
        "Maximum number of sends that wait for disk or slaves at a time (SYNC_FLUSH, SYNC_MASTER); more are rejected "
        "with SYSTEM_BUSY.",
        whole(1, 10_000_000, hot=True),
    )
    wait_time_mills_in_send_queue: Whole = setting(
        200,
        "Longest wait of a send for earlier sends of its connection that wait for disk or slaves; then it is rejected "
        "with SYSTEM_BUSY.",
        millis(1, 10 * MINUTE_MS, hot=True),
    )
    broker_fast_failure_enable: Flag = setting(True, "Enforce waitTimeMillsInSendQueue.", HOT)
    reject_transaction_message: Flag = setting(
        False, "Reject messages of transactions with NO_PERMISSION.", HOT_IMPORTANT
    )
    transaction_time_out: Whole = setting(
        6_000,
        "Age of a half message at which its producer is asked for the outcome of the transaction.",
        millis(0, DAY_MS, hot=True, important=True),
    )
    transaction_check_max: Whole = setting(
        15,
        "Number of checks after which a transaction moves to TRANS_CHECK_MAX_TIME_TOPIC.",
        whole(1, 1_000_000, hot=True, important=True),
    )
    transaction_check_interval: Whole = setting(
        30_000, "Interval at which open transactions are checked.", millis(1_000, HOUR_MS, hot=True, important=True)
    )
    transaction_check_bytes_per_second: Whole = setting(
        262_144,
        "Log bytes per second for copies of checked half messages; unused bytes of the last 10 s carry over. Beyond "
        "this, producers are still asked, but the number of checks is kept in memory only.",
        whole(1, 1 << 30, "bytes/s", hot=True, own=True),
    )
    transaction_op_msg_max_size: Whole = setting(
        4_096,
        "Length of the list of ended transactions at which it is written to RMQ_SYS_TRANS_OP_HALF_TOPIC.",
        size(1, 1_048_576, hot=True),
    )
    transaction_op_batch_interval: Whole = setting(
        3_000,
        "Longest time for which ended transactions are collected before they are written together.",
        millis(0, 10 * MINUTE_MS, hot=True),
    )
    channel_expired_timeout: Whole = setting(
        120_000,
        "Time without a heartbeat after which the connection of a producer or consumer is closed.",
        millis(1_000, DAY_MS),
    )
    register_name_server_period: Whole = setting(
        30_000, "Interval at which the broker registers with every name server.", millis(1_000, MINUTE_MS, hot=True)
    )
    register_broker_timeout_mills: Whole = setting(
        24_000, "Timeout of one registration.", millis(100, MINUTE_MS, hot=True)
    )
    force_register: Flag = setting(True, "Register every period even if no topic has changed.", HOT)
    compressed_register: Flag = setting(False, "Deflate the body of registrations.", HOT)
    enable_single_topic_register: Flag = setting(
        False, "Register changed topics by REGISTER_TOPIC_IN_NAMESRV, one by one, instead of by REGISTER_BROKER.", HOT
    )
    enable_split_registration: Flag = setting(
        False, "Register in parts of splitRegistrationSize topics; otherwise in parts of up to 5,000.", HOT
    )
    split_registration_size: Whole = setting(
        800, "Topics in each part of a registration if enableSplitRegistration=true.", whole(2, 10_000, hot=True)
    )
    max_topic_nums: Whole = setting(
        100_000,
        "Maximum number of topics, including system topics; beyond it no topic is created.",
        whole(1, 1_000_000, hot=True, own=True),
    )
    max_auto_create_topic_nums: Whole = setting(
        50_000,
        "Number of topics above which sends, heartbeats and send-backs create no topic; administrators still can.",
        whole(1, 1_000_000, hot=True, own=True),
    )
    flush_consumer_offset_interval: Whole = setting(
        5_000,
        "Interval at which consumer offsets are written to config/consumerOffset.json.",
        millis(100, 10 * MINUTE_MS, hot=True),
    )
