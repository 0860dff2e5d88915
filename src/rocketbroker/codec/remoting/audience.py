"""Kinds of peers to which a request code is open."""

from enum import IntEnum


class Audience(IntEnum):
    """Kind of peer; each may also send what those before it may send.

    A route names the lowest kind that may send it; a connection has the kind as which its peer was admitted.
    """

    CLIENT = 1
    BROKER = 2
    ADMINISTRATION = 3

    @property
    def word(self) -> str:
        """Name of the audience in texts for people: ``client``, ``broker`` or ``administration``."""
        return self.name.lower()
