"""Allocation of queues to the members of a group, by rules that clients and brokers share (the strategies of RocketMQ).

All sort queues and members alike, so that they agree without talking to each other.
"""

from collections.abc import Sequence
from typing import TypeVar

Q = TypeVar("Q")


def allocate_averagely(client_id: str, queues: Sequence[Q], client_ids: Sequence[str]) -> list[Q]:
    """Return the member's slice of neighbouring queues; the first members get one more (AVG)."""
    share, longer = divmod(len(queues), len(client_ids))
    index = client_ids.index(client_id)
    start = index * share + min(index, longer)
    return list(queues[start : start + share + (index < longer)])


def allocate_averagely_by_circle(client_id: str, queues: Sequence[Q], client_ids: Sequence[str]) -> list[Q]:
    """Return every n-th queue from the member's index on (AVG_BY_CIRCLE)."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def java_order(text: str) -> bytes:
    """Return a key that sorts texts as Java does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
