"""A pull that waits for messages (org.apache.rocketmq.broker.longpolling.PullRequest)."""

from collections.abc import Callable
from typing import Any

from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.store.read.message_filter import MessageFilter

#: Tags codes, ``None`` for all messages, and a filter on properties in their place.
Wanted = tuple[frozenset[int] | None, MessageFilter | None]

# Memory of a held pull in units of a plain one: this many tags, or a filter of its own, which caches results.
_TAGS_A_UNIT = 4
_FILTER_UNITS = 32


class PullRequest:
    """A held pull.

    Attributes:
        run: runs the pull again; the answer is what it finds then.
        offset: queue offset of the first message that it wants.
        tag_codes: tags codes that it wants, ``None`` for all.
        has_match: set when it filters by properties. Returns whether a wanted message has arrived since the last call;
            ``None`` to be called again after others had their turn.
        carried: the subscription that it brought, which its header does not keep; ``None`` to use that of its group.
        deadline: key in the service's ``Deadlines``.
        held: the service still holds it.
        weight: memory in units of a plain pull.
        woken: it is about to run again.
    """

    __slots__ = (
        "carried",
        "command",
        "connection",
        "deadline",
        "has_match",
        "held",
        "offset",
        "queue_id",
        "run",
        "tag_codes",
        "topic",
        "weight",
        "woken",
    )

    def __init__(  # noqa: PLR0913 - each is one thing that a held pull is known by
        self,
        connection: Connection,
        command: Any,
        topic: str,
        queue_id: int,
        offset: int,
        tag_codes: frozenset[int] | None,
        has_match: Callable[[], bool | None] | None = None,
        *,
        run: "Callable[[PullRequest], Answer]",
        carried: Wanted | None = None,
    ) -> None:
        self.run = run
        self.connection = connection
        self.command = command
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.tag_codes = tag_codes
        self.has_match = has_match
        self.carried = carried
        self.deadline = 0
        self.held = False
        self.woken = False
        own_filter = carried is not None and has_match is not None
        tags = 0 if tag_codes is None else len(tag_codes)
        self.weight = 1 + tags // _TAGS_A_UNIT + (_FILTER_UNITS if own_filter else 0)
