"""Due times of many messages of SCHEDULE_TOPIC_XXXX. Separate from ``delay_levels.py``, which needs no numpy."""

import numpy as np

from rocketbroker.codec.byte_columns import Positions
from rocketbroker.codec.message.delay_levels import deliver_timestamp, level_of
from rocketbroker.codec.storefile.window_messages import WindowMessages


def due_times(levels: dict[int, int], window: WindowMessages, members: Positions) -> Positions:
    """Return the delivery times in ms of the messages numbered ``members``: the tags codes of their queue entries.

    Args:
        levels: ms by level.
        window: the messages.
        members: numbers of messages, shape (n,).
    """
    found = [level_of(window.value(window.delay_levels, member)) for member in members.tolist()]
    stored = window.store_timestamps[members].tolist()
    times = [deliver_timestamp(levels, level, at) for level, at in zip(found, stored, strict=True)]
    return np.array(times, np.int64)
