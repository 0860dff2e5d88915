"""A pull that waits for messages (org.apache.rocketmq.broker.longpolling.PullRequest)."""

from collections.abc import Callable
from typing import Any

from rocketbroker.codec.remoting.handler import Answer, Connection
from rocketbroker.store.read.message_filter import MessageFilter

#: Tags codes (``None`` for all messages), and a filter on properties, which replaces them.
Wanted = tuple[frozenset[int] | None, MessageFilter | None]

# Memory of a held pull in units of a plain one: tags per unit, and units of its own filter, which caches results.
_TAGS_A_UNIT = 4
_FILTER_UNITS = 32


class PullRequest:
    """A held pull.

    Attributes:
        run: function that runs the pull again and returns its answer.
        offset: queue offset of the first message wanted.
        tag_codes: tags codes wanted, ``None`` for all.
        has_match: set if the pull filters by properties. Returns true if a wanted message has arrived since the last
            call, ``None`` if it must be called again after other work.
        carried: subscription that the pull brought and its header no longer has; ``None`` to use that of its group.
        deadline: key in the service's ``Deadlines``.
        held: true while the service holds the pull.
        weight: memory in units of a plain pull.
        woken: true once the pull is scheduled to run again.
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

    def __init__(  # noqa: PLR0913 - a held pull has these parts
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
