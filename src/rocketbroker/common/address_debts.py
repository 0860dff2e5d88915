"""Debts of addresses: leaky buckets in a table of bounded size.

Each event of an address adds one to its debt, and time takes some away. Events and what a debt means differ:

- ``auth.failed_attempts``: a wrong signature; its answer is late.
- ``transport.failed_connections``: a failed connection; fewer new ones are served.
- ``transport.handshake_limits``: a handshake of a failing address; the next one waits.

Memory is bounded: beyond ``MAX_ADDRESSES`` the address whose last event is oldest is forgotten. So strangers with many
addresses hide no other one that goes on: it comes last again with each event.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MAX_ADDRESSES: Final = 10_000


class AddressDebts:
    """Debts by the keys of addresses.

    Args:
        leak: what a second takes away.
        most: the largest debt, so that an address that stops is rid of it within a known time.
    """

    def __init__(self, leak: float, most: float) -> None:
        self._leak = leak
        self._most = most
        # Debt and the time it was counted at, the latest event last.
        self._debts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of addresses that are remembered."""
        return len(self._debts)

    def of(self, key: Hashable, now: float) -> float:
        """Return the debt of an address at a time in seconds."""
        known = self._debts.get(key)
        return 0.0 if known is None else max(known[0] - (now - known[1]) * self._leak, 0.0)

    def add(self, key: Hashable, now: float) -> float:
        """Add one to the debt of an address at a time in seconds; return the debt."""
        debt = min(self.of(key, now) + 1, self._most)
        self._debts[key] = debt, now
        self._debts.move_to_end(key)
        if len(self._debts) > MAX_ADDRESSES:
            self._debts.popitem(last=False)
        return debt
