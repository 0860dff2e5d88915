"""A listener to changes of the topic table."""

import asyncio
from collections.abc import Sequence

from rocketbroker.broker.topic.topic_config_manager import TopicChange
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig


class HeardTopics(list[TopicConfig]):
    """The topics that were created or changed; nobody waits for it."""

    def __call__(self, change: TopicChange) -> Sequence[asyncio.Future[None]]:
        self.extend(change.topics)
        return ()
