"""Processors of the parts that tests/unit/processor/conftest.py makes, as the table puts them together."""

from types import SimpleNamespace

from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.processor.heart_beat import HeartbeatLimit, HeartBeatProcessor
from rocketbroker.processor.pull_message import PullMessageProcessor
from rocketbroker.processor.support.pull_filter import PullFilter
from rocketbroker.processor.support.suggested_broker import SuggestedBroker
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
    return PullMessageProcessor(
        parts.config,
        store.fetcher,
        parts.topic_configs,
        parts.subscription_groups,
        PullFilter(parts.config, parts.consumers, parts.subscription_groups, parts.consumer_filters),
        parts.offsets,
        parts.stats,
        holds,
        parts.send_backs,
        SuggestedBroker(parts.config, store.fetcher, lambda: parts.has_master, lambda: parts.acting_as),
        parts.consumers,
    )
