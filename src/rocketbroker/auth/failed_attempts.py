"""Slow-down of peers whose credentials fail, by address.

Each failure of an address adds one to its debt, and each second takes one away. Up to ``_FREE`` the answer goes out at
once, so that a client with a wrong secret learns so. Beyond that it waits, twice as long with each failure, up to
``MAX_DELAY_S``.

The credentials of every request are checked at once, whatever the debt. A client with the right secret is not slowed
down by another one behind the same address. So the delays do not bound the number of guesses: a guesser need not wait
for the answers to wrong ones. Two things do: once too many answers of an address wait, each further failure costs it a
connection (``late_refusals``), and a secret has ``users.MIN_SECRET_LENGTH`` characters.

A success does not clear the debt: with an account of one's own, guessing another's secret would cost nothing.

Memory is bounded (``AddressDebts``). IPv6 addresses count by network of 64 bits, since a host has as many addresses as
it wants in one. What the connections of such peers cost is bounded apart, by ``transport.failed_connections``.
"""

from collections.abc import Hashable
from typing import Final

from rocketbroker.auth.authorization import source_of
from rocketbroker.common.address_debts import AddressDebts
from rocketbroker.common.clock import Clock

MAX_DELAY_S: Final = 5.0
_FREE: Final = 5
_FIRST_DELAY_S: Final = 0.05
# The delay does not grow any more 8 failures later, and a guesser should not be locked out for hours.
_MAX_DEBT: Final = _FREE + 8 + 30.0


class FailedAttempts:
    """Debts of addresses, and counts for metrics.

    Args:
        clock: its monotonic time counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._debts = AddressDebts(1.0, _MAX_DEBT)
        #: Failures since the start.
        self.failures = 0
        #: Those whose answer was delayed.
        self.delayed = 0

    def __len__(self) -> int:
        """Return the number of addresses that are remembered."""
        return len(self._debts)

    def failed(self, address: str) -> float:
        """Count a failure; return the seconds to wait before it is answered.

        Args:
            address: IP address of the peer, without port.
        """
        self.failures += 1
        debt = self._debts.add(key_of(address), self._clock.monotonic())
        if debt <= _FREE:
            return 0.0
        self.delayed += 1
        return min(_FIRST_DELAY_S * 2 ** (debt - _FREE - 1), MAX_DELAY_S)


def key_of(address: str) -> Hashable:
    """Return the key by which an IP address counts."""
    source = source_of(address)
    if source is None:
        return ""
    return source if source.version == 4 else source.number >> 64
