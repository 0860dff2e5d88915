"""Processors of the parts that tests/unit/processor/conftest.py makes, as the table puts them together."""

from types import SimpleNamespace

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.processor.heart_beat import HeartbeatLimit, HeartBeatProcessor
from rocketbroker.processor.pull_message import PullMessageProcessor
from rocketbroker.processor.slave_reads import SlaveReads
from rocketbroker.processor.support.pull_accounts import PullAccounts
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions
from rocketbroker.store.message_store import MessageStore


def heart_beat_processor(parts: SimpleNamespace) -> HeartBeatProcessor:
    """Takes the heartbeats of clients."""
    return HeartBeatProcessor(
        parts.topic_configs,
        parts.subscription_groups,
        parts.consumers,
        parts.producers,
        parts.consumer_filters,
        parts.clock,
        HeartbeatLimit(parts.config, parts.consumers, parts.producers, parts.subscription_groups),
    )


def pull_processor(parts: SimpleNamespace, store: MessageStore, holds: PullRequestHoldService) -> PullMessageProcessor:
    """Return a processor for pulls, which also answers those in ``holds`` once messages arrive."""
    needed = (
        parts.config,
        parts.topic_configs,
        PullSubscriptions(parts.config, parts.consumers, parts.subscription_groups, parts.consumer_filters),
        store.fetcher,
        PullAccounts(parts.subscription_groups, parts.consumers, parts.offsets, parts.stats, parts.send_backs),
        holds,
    )
    return PullMessageProcessor(*needed) if parts.slave is None else SlaveReads(parts.slave, *needed)
