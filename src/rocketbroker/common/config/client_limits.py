"""Limits of the broker for clients, groups, pulls and administration; part of the broker's settings."""

from rocketbroker.common.config.fields import ConfigModel, Trait, Whole, setting

_HOT = Trait(hot=True, own=True)


class ClientLimits(ConfigModel):
    """Limits of the state that clients keep in the broker, and of single requests."""

    max_heartbeat_size: Whole = setting(
        "maxHeartbeatSize",
        262_144,
        "Maximum size of a heartbeat, and of the subscriptions of a client in all its groups; a larger heartbeat is "
        "rejected with INVALID_PARAMETER.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=4_194_304,
    )
    max_groups_per_client: Whole = setting(
        "maxGroupsPerClient",
        512,
        "Maximum number of producer and consumer groups of a client; a heartbeat with more is rejected with "
        "INVALID_PARAMETER.",
        _HOT,
        low=8,
        high=10_000,
    )
    max_subscriptions_per_client: Whole = setting(
        "maxSubscriptionsPerClient",
        1_024,
        "Maximum number of subscriptions of a client in all its groups; a heartbeat with more is rejected with "
        "INVALID_PARAMETER.",
        _HOT,
        low=16,
        high=100_000,
    )
    max_client_id_length: Whole = setting(
        "maxClientIdLength",
        1_024,
        "Maximum length of the clientID in a heartbeat; a longer one is rejected with INVALID_PARAMETER.",
        Trait(unit="characters", hot=True, own=True),
        low=64,
        high=65_536,
    )
    max_auto_create_group_nums: Whole = setting(
        "maxAutoCreateGroupNums",
        10_000,
        "Number of consumer groups above which clients create no group; administrators still can.",
        _HOT,
        low=1,
        high=1_000_000,
    )
    max_entries_per_answer: Whole = setting(
        "maxEntriesPerAnswer",
        65_536,
        "Maximum number of queues or clients in an answer to an administrator; a request for more is rejected with "
        "SYSTEM_ERROR.",
        _HOT,
        low=1_024,
        high=10_000_000,
    )
    max_calls_per_consumer: Whole = setting(
        "maxCallsPerConsumer",
        16,
        "Maximum number of unanswered requests of administrators to a consumer (CONSUME_MESSAGE_DIRECTLY, "
        "GET_CONSUMER_RUNNING_INFO); more are rejected with SYSTEM_BUSY.",
        _HOT,
        low=1,
        high=10_000,
    )
    max_waiting_queries: Whole = setting(
        "maxWaitingQueries",
        256,
        "Maximum number of concurrent queries by key, id and time; more are rejected with SYSTEM_BUSY. One address "
        "gets as many as it leaves to others.",
        _HOT,
        low=1,
        high=100_000,
    )
    max_queues_per_lock_request: Whole = setting(
        "maxQueuesPerLockRequest",
        4_096,
        "Maximum number of queues in a LOCK_BATCH_MQ or UNLOCK_BATCH_MQ; one with more is rejected with "
        "INVALID_PARAMETER.",
        _HOT,
        low=16,
        high=65_536,
    )
    max_queue_locks: Whole = setting(
        "maxQueueLocks",
        100_000,
        "Maximum number of queues that orderly consumers hold locked; of the rest, an address of clients gets no more "
        "than it leaves to others. A queue beyond it is left out of the answer, and the consumer asks again.",
        _HOT,
        low=1_000,
        high=10_000_000,
    )
    max_consumer_offset_nums: Whole = setting(
        "maxConsumerOffsetNums",
        500_000,
        "Maximum number of consumer offsets, committed and pulled, one for each group and queue; the first offset of "
        "another queue is rejected with SYSTEM_ERROR.",
        _HOT,
        low=1_000,
        high=100_000_000,
    )
    max_subscription_length: Whole = setting(
        "maxSubscriptionLength",
        16_384,
        "Maximum length of a topic subscription in a pull or heartbeat; a longer one is rejected with "
        "SUBSCRIPTION_PARSE_FAILED.",
        Trait(unit="characters", hot=True, own=True),
        low=1_024,
        high=1_048_576,
    )
    max_subscription_tags: Whole = setting(
        "maxSubscriptionTags",
        1_024,
        "Maximum number of tags in a subscription; one with more is rejected with SUBSCRIPTION_PARSE_FAILED.",
        _HOT,
        low=128,
        high=65_536,
    )
    max_held_pulls: Whole = setting(
        "maxHeldPulls",
        100_000,
        "Maximum number of held pulls; more are rejected with SYSTEM_BUSY. One address gets as many as it leaves to "
        "others. A pull that filters by 4 tags counts as two, by 8 as three, and a pull that carries an SQL92 "
        "expression as 33.",
        _HOT,
        low=1,
        high=10_000_000,
    )
    max_held_pulls_per_connection: Whole = setting(
        "maxHeldPullsPerConnection",
        16_384,
        "Maximum number of held pulls of one connection, counted as for maxHeldPulls.",
        _HOT,
        low=1,
        high=10_000_000,
    )
    max_suspend_timeout_millis: Whole = setting(
        "maxSuspendTimeoutMillis",
        60_000,
        "Longest time for which a pull is held, whatever time it asks for (suspendTimeoutMillis); clients ask for 15 "
        "to 30 s, and pull again.",
        Trait(unit="ms", hot=True, own=True),
        low=1_000,
        high=86_400_000,
    )
    consumer_send_msg_back_bytes_per_second: Whole = setting(
        "consumerSendMsgBackBytesPerSecond",
        1_048_576,
        "Message bytes per second that consumers may send back without having received them on their connection; "
        "unused bytes of the last 10 s carry over. More are rejected with SYSTEM_BUSY, and clients retry or keep "
        "them.",
        Trait(unit="bytes/s", hot=True, own=True),
        low=1,
        high=1 << 40,
    )
    max_filter_length_per_client: Whole = setting(
        "maxFilterLengthPerClient",
        4_200,
        "Maximum total length of SQL92 filters in a heartbeat, 12 added for each; a heartbeat with more is rejected "
        "with INVALID_PARAMETER.",
        Trait(unit="characters", hot=True, own=True),
        low=256,
        high=1_048_576,
    )
    max_consumer_filter_nums: Whole = setting(
        "maxConsumerFilterNums",
        10_000,
        "Maximum number of SQL92 filters of groups. New filters replace those of groups without clients; beyond that "
        "no filter is registered.",
        _HOT,
        low=100,
        high=1_000_000,
    )
