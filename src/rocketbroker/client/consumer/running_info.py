"""State of a consumer for GET_CONSUMER_RUNNING_INFO (DefaultMQPushConsumerImpl.consumerRunningInfo)."""

import sys
import threading
import traceback

from rocketbroker.client.consumer.consumer_stats import ConsumerStats
from rocketbroker.client.consumer.group_queues import GroupQueues
from rocketbroker.client.consumer.offset_store import OffsetStore
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.codec.remoting.bodies.client import ConsumerRunningInfo, ProcessQueueInfo
from rocketbroker.common.clock import Clock

_MIB = 1024 * 1024


def running_info(
    properties: dict[str, str],
    queues: GroupQueues,
    offsets: OffsetStore,
    stats: ConsumerStats,
    clock: Clock,
    *,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """Return the state of a consumer, with the stacks of all threads if wanted."""
    # Adding it turns monotonic times into wall times, in seconds.
    difference = clock.time_ms() / 1000 - clock.monotonic()

    def info(held: ProcessQueue) -> ProcessQueueInfo:
        first, last = held.offset_range
        return ProcessQueueInfo(
            commit_offset=offsets.offsets.get(held.queue, held.commit_offset),
            cached_msg_min_offset=first,
            cached_msg_max_offset=last,
            cached_msg_count=len(held),
            cached_msg_size_in_mib=held.bytes // _MIB,
            locked=queues.table.is_locked(held),
            last_lock_timestamp=round((held.last_lock + difference) * 1000),
            dropped=held.dropped,
            last_pull_timestamp=round((held.last_pull + difference) * 1000),
            last_consume_timestamp=round((held.last_consume + difference) * 1000),
        )

    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=list(queues.subscriptions.by_topic.values()),
        mq_table={queue: info(held) for queue, held in sorted(queues.table.queues.items())},
        status_table=stats.status(),
        jstack=_stacks() if with_stacks else None,
    )


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
