"""Limits of the broker for clients, groups and questions of administration; part of the broker's settings."""

from rocketbroker.common.config.fields import ConfigModel, Trait, Whole, setting

_HOT = Trait(hot=True, own=True)


class ClientLimits(ConfigModel):
    """How much clients may have in the broker, and how much of it one request takes."""

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
        256,
        "Most groups that a client produces and consumes in; a heartbeat with more is refused with INVALID_PARAMETER.",
        _HOT,
        low=8,
        high=10_000,
    )
    max_subscriptions_per_client: Whole = setting(
        "maxSubscriptionsPerClient",
        2_048,
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
