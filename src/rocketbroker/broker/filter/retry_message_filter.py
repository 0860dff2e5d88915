"""Filter for messages of a retry topic (org.apache.rocketmq.broker.filter.ExpressionForRetryMessageFilter)."""

from collections.abc import Callable
from typing import Final

from rocketbroker.broker.filter.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.codec.message.message_properties import get_property_text
from rocketbroker.codec.message.record_properties import PropertyBlocks

RETRY_TOPIC: Final = "RETRY_TOPIC"


class RetryMessageFilter:
    """Applies the filter of each message's original topic; without one the message is delivered.

    Args:
        consumer_filters: the filters by group and topic.
        group: the group of the retry topic.
    """

    def __init__(self, consumer_filters: ConsumerFilterManager, group: str) -> None:
        self._consumer_filters = consumer_filters
        self._group = group

    #: False, because the filter of any topic may be slow.
    is_quick: Final = False

    def is_matched_by_commit_log(
        self, properties: PropertyBlocks, is_over: Callable[[], bool] | None = None
    ) -> list[bool]:
        """See ``store.message_filter.MessageFilter``."""
        return [self._is_matched(each) for each in properties.raws()]

    def _is_matched(self, properties: bytes) -> bool:
        topic = get_property_text(properties, RETRY_TOPIC)
        data = None if topic is None else self._consumer_filters.get(topic, self._group)
        return data is None or data.message_filter.is_matched_by_commit_log(PropertyBlocks.of([properties]))[0]
