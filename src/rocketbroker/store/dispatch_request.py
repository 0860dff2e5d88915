"""A message that is in the log and not yet in its queue (org.apache.rocketmq.store.DispatchRequest)."""

from rocketbroker.codec.message.message_properties import FoundProperties
from rocketbroker.store.consume_queue import ConsumeQueue

# Queue, queue offset, CommitLog offset, size, tags code, store time in ms, and by what it is found. A bare tuple, since
# one is made for each message.
DispatchRequest = tuple[ConsumeQueue, int, int, int, int, int, FoundProperties]
