"""Limits of the broker for clients, groups, pulls and questions of administration; part of the broker's settings."""

from rocketbroker.common.config.fields import ConfigModel, Trait, Whole, setting

_HOT = Trait(hot=True, own=True)


class ClientLimits(ConfigModel):
    """Limits of the state that clients keep in the broker, and of single requests."""

    max_heartbeat_size: Whole = setting(
        "maxHeartbeatSize",
        262_144,
        "Longest heartbeat, and the most that the subscriptions of a client take in all its groups; a longer one is "
        "refused with INVALID_PARAMETER.",
        Trait(unit="bytes", hot=True, own=True),
        low=4_096,
        high=4_194_304,
    )
    max_groups_per_client: Whole = setting(
        "maxGroupsPerClient",
        512,
        "Most groups that a client produces and consumes in; a heartbeat with more is refused with INVALID_PARAMETER.",
        _HOT,
        low=8,
        high=10_000,
    )
    max_subscriptions_per_client: Whole = setting(
        "maxSubscriptionsPerClient",
        1_024,
        "Most subscriptions of a client in all its groups; a heartbeat with more is refused with INVALID_PARAMETER.",
        _HOT,
        low=16,
        high=100_000,
    )
    max_client_id_length: Whole = setting(
        "maxClientIdLength",
        1_024,
        "Longest clientID of a heartbeat; a longer one is refused with INVALID_PARAMETER.",
        Trait(unit="characters", hot=True, own=True),
        low=64,
        high=65_536,
    )
    max_auto_create_group_nums: Whole = setting(
        "maxAutoCreateGroupNums",
        10_000,
        "Consumer groups above which only administrators create another: none is created by a client.",
        _HOT,
        low=1,
        high=1_000_000,
    )
    max_entries_per_answer: Whole = setting(
        "maxEntriesPerAnswer",
        65_536,
        "Most queues or clients that an answer to administration tells of; a request for more is refused with "
        "SYSTEM_ERROR.",
        _HOT,
        low=1_024,
        high=10_000_000,
    )
    max_calls_per_consumer: Whole = setting(
        "maxCallsPerConsumer",
        16,
        "Most requests of administration (CONSUME_MESSAGE_DIRECTLY, GET_CONSUMER_RUNNING_INFO) that a consumer has not "
        "answered yet; one more is refused with SYSTEM_BUSY.",
        _HOT,
        low=1,
        high=10_000,
    )
    max_waiting_queries: Whole = setting(
        "maxWaitingQueries",
        256,
        "Most queries by key, id and time that are under way; one more is refused with SYSTEM_BUSY.",
        _HOT,
        low=1,
        high=100_000,
    )
    max_queues_per_lock_request: Whole = setting(
        "maxQueuesPerLockRequest",
        4_096,
        "Most queues in a LOCK_BATCH_MQ or UNLOCK_BATCH_MQ; one with more is refused with INVALID_PARAMETER.",
        _HOT,
        low=16,
        high=65_536,
    )
    max_consumer_offset_nums: Whole = setting(
        "maxConsumerOffsetNums",
        500_000,
        "Most consumer offsets, one for each group and queue, committed and pulled ones; the first offset of another "
        "queue is refused with SYSTEM_ERROR.",
        _HOT,
        low=1_000,
        high=100_000_000,
    )
    max_subscription_length: Whole = setting(
        "maxSubscriptionLength",
        16_384,
        "Longest subscription to a topic that a pull or a heartbeat may bring; a longer one is refused with "
        "SUBSCRIPTION_PARSE_FAILED.",
        Trait(unit="characters", hot=True, own=True),
        low=1_024,
        high=1_048_576,
    )
    max_subscription_tags: Whole = setting(
        "maxSubscriptionTags",
        1_024,
        "Most tags in a subscription; one with more is refused with SUBSCRIPTION_PARSE_FAILED.",
        _HOT,
        low=128,
        high=65_536,
    )
    max_held_pulls: Whole = setting(
        "maxHeldPulls",
        100_000,
        "Most pulls that are held at a time; one more is refused with SYSTEM_BUSY. One that filters by 4 tags counts "
        "as two, by 8 as three, and one that brings an SQL92 expression as 33.",
        _HOT,
        low=1,
        high=10_000_000,
    )
    max_held_pulls_per_connection: Whole = setting(
        "maxHeldPullsPerConnection",
        16_384,
        "Most pulls of one connection that are held at a time, counted like those of maxHeldPulls.",
        _HOT,
        low=1,
        high=10_000_000,
    )
    consumer_send_msg_back_bytes_per_second: Whole = setting(
        "consumerSendMsgBackBytesPerSecond",
        1_048_576,
        "Bytes of messages that consumers may send back each second, with what was not sent in the last 10 s, besides "
        "those that their connections were given. Others are refused with SYSTEM_BUSY, and clients send or keep them "
        "themselves.",
        Trait(unit="bytes/s", hot=True, own=True),
        low=1,
        high=1 << 40,
    )
    max_filter_length_per_client: Whole = setting(
        "maxFilterLengthPerClient",
        8_500,
        "Most characters of the SQL92 filters of a heartbeat, and 12 for each; one with more is refused with "
        "INVALID_PARAMETER.",
        Trait(unit="characters", hot=True, own=True),
        low=256,
        high=1_048_576,
    )
    max_consumer_filter_nums: Whole = setting(
        "maxConsumerFilterNums",
        10_000,
        "Most SQL92 filters of groups; those of groups without clients give way to new ones, beyond them none is "
        "registered.",
        _HOT,
        low=100,
        high=1_000_000,
    )
