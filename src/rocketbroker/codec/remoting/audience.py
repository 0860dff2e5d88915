"""Kinds of peers that a request code is meant for."""

from enum import IntEnum


class Audience(IntEnum):
    """Kind of peer; each may also send what those before it may.

    A route names the least of them that may send it, a connection has the one that its peer is admitted as.
    """

    CLIENT = 1
    BROKER = 2
    ADMINISTRATION = 3

    @property
    def word(self) -> str:
        """The audience in texts for people: ``client``, ``broker`` or ``administration``."""
        return self.name.lower()
