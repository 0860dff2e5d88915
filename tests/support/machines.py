"""Machines of a cluster under test: in network namespaces where they can be made, else all on loopback."""

from pathlib import Path
from typing import Protocol

import pytest

from tests.support.link_proxy import BACK, FORWARD, LinkProxy
from tests.support.our_servers import OurServers
from tests.support.packet_switch import HERE, PacketSwitch
from tests.support.ports import free_ports

NAMESRV, MASTER, SLAVE, SPARE = MACHINES = ("namesrv", "master", "slave", "spare")
# The machine of the test and the clients.
CLIENTS = HERE


class Machines(Protocol):
    """Machines and the links between them.

    Attributes:
        title: kind of the machines, for the output of a test.
        has_all_links: true if each link can be cut, false if only the one between master and slave can.
        settings: settings of each server.
        slave_settings: settings of the slave, as it reaches its master.
        master_port: port of the master.
    """

    title: str
    has_all_links: bool
    settings: dict[str, str | int]
    slave_settings: dict[str, str | int]
    master_port: int

    def servers(self, machine: str) -> OurServers:
        """Return a starter of servers on a machine."""

    def drop(self, source: str, destination: str, share: float) -> None:
        """Drop a share of what one machine sends to another."""

    def heal(self) -> None:
        """Drop nothing any more."""

    def close(self) -> None:
        """End the network; all servers must have ended."""


class SwitchedMachines:
    """Machines in network namespaces, joined by a switch.

    Raises:
        pytest.skip.Exception: they cannot be made here.
    """

    title = "network namespaces"
    has_all_links = True

    def __init__(self, home: Path) -> None:
        self._home = home
        self._switch = PacketSwitch(*MACHINES)
        self.drop = self._switch.drop
        self.heal = self._switch.heal
        self.close = self._switch.close
        self.settings: dict[str, str | int] = dict.fromkeys(("brokerWhiteList", "adminWhiteList"), self._switch.network)
        self.slave_settings: dict[str, str | int] = {}
        self.master_port = free_ports(-2, 1)

    def servers(self, machine: str) -> OurServers:
        """Return a starter of servers on a machine."""
        home = self._home / machine
        home.mkdir()
        return OurServers(home, self._switch.address(machine), self._switch.runner(machine))


class LoopbackMachines:
    """The loopback interface, with a proxy between slave and master."""

    title = "loopback"
    has_all_links = False

    def __init__(self, home: Path) -> None:
        self._home = home
        self.master_port = free_ports(-2, 1)
        self._link = LinkProxy(self.master_port + 1)
        self.heal = self._link.heal
        self.close = self._link.close
        self.settings: dict[str, str | int] = {}
        self.slave_settings: dict[str, str | int] = {"haMasterAddress": f"127.0.0.1:{self._link.port}"}

    def servers(self, machine: str) -> OurServers:
        """Return a starter of servers."""
        home = self._home / machine
        home.mkdir()
        return OurServers(home)

    def drop(self, source: str, destination: str, share: float) -> None:
        """Hold a share of the bytes back."""
        self._link.drop({(SLAVE, MASTER): FORWARD, (MASTER, SLAVE): BACK}[source, destination], share)


def make_machines(home: Path) -> Machines:
    """Make machines in namespaces, or on the loopback interface where that is refused; print which."""
    try:
        machines: Machines = SwitchedMachines(home)
    except pytest.skip.Exception as refused:
        print(refused)
        machines = LoopbackMachines(home)
    print(f"machines: {machines.title}")
    return machines
