"""The master of a slave, as the answers to its registrations name it (BrokerController.handleRegisterBrokerResult)."""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

log = logging.getLogger(__name__)


class Master(NamedTuple):
    """A master: ``address`` for requests, ``ha_address`` for its log; both empty while none is registered."""

    address: str = ""
    ha_address: str = ""


_NOBODY: Final = Master()


class MasterAddress:
    """The registered master of this broker's name, by the newest answers of the name servers.

    A name server that fails keeps its answer only while no other one has answered, so that a slave follows its master
    while all name servers are dead.

    Args:
        own_address: returns the address of this broker, which is never its own master.

    Attributes:
        master: the master.
        answers: true while the master answers requests, as far as is known.
    """

    def __init__(self, own_address: Callable[[], str]) -> None:
        self._own_address = own_address
        # Newest answers by name server.
        self._answers: dict[str, Master] = {}
        # A master that is about to register; it counts while no name server names one.
        self._announced = _NOBODY
        self._listeners: list[Callable[[Master], None]] = []
        self._logged = ""
        self.master = _NOBODY
        self.answers = False

    def on_change(self, listener: Callable[[Master], None]) -> None:
        """Add a listener for another master, or none."""
        self._listeners.append(listener)

    def announce(self, master: Master) -> bool:
        """Follow a master that is about to register; return false if a name server names another one."""
        if master.address in {"", self._own_address()}:
            return False
        self._announced = master
        self._choose()
        return self.master.address == master.address

    def forget(self) -> None:
        """Forget the master: no name server has it any more."""
        self._answers.clear()
        self._announced = _NOBODY
        self._choose()

    def registered(self, name_server: str, master: Master) -> None:
        """Note the answer of a name server to a registration."""
        if master.address:
            self._announced = _NOBODY
        if master.address and master.address == self._own_address():
            self._log(
                f"name server {name_server} has this broker's address {master.address} as that of its master: "
                "another broker uses it; give each broker its own address"
            )
            master = _NOBODY
        self._answers.pop(name_server, None)
        self._answers[name_server] = master
        self._choose()

    def lost(self, name_server: str) -> None:
        """Note that a name server no longer answers."""
        if len(self._answers) > 1 and self._answers.pop(name_server, None) is not None:
            self._choose()

    def _choose(self) -> None:
        """Keep the master while a name server has it; otherwise take the one that was named last."""
        named = [(server, master) for server, master in self._answers.items() if master.address]
        if self._announced.address and not named:
            named = [("the master itself", self._announced)]
        masters = {master for _, master in named}
        if len({master.address for master in masters}) > 1:
            where = ", ".join(f"{master.address} at {server}" for server, master in named)
            self._log(
                f"the name servers have different masters for this slave: {where}; stop one of them, or give each "
                "its own brokerName"
            )
        chosen = self.master if self.master in masters else named[-1][1] if named else _NOBODY
        if chosen == self.master:
            return
        self.master = chosen
        self.answers = bool(chosen.address)
        log.info("the master of this slave is %s", chosen.address or "not registered")
        for listener in self._listeners:
            listener(chosen)

    def _log(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            log.error("%s", text)
