"""Machines with a network of their own, joined by a switch that drops packets on order.

    with PacketSwitch("master", "slave") as switch:
        subprocess.Popen([*switch.runner("master"), "program"])    # has the address switch.address("master")
        switch.drop("master", "slave", 0.3)                        # 30 % of the packets, one way
        switch.heal()

Each machine is a network namespace with a TUN device, and this process is the machine ``HERE``. Run as a program it is
the switch, with which the machines end: ``packet_switch.py SUBNET MACHINE_COUNT``.
"""

import contextlib
import ctypes
import fcntl
import os
import random
import selectors
import struct
import subprocess
import sys
from types import TracebackType
from typing import Self

import pytest

HERE = "here"
READY = "ready"
_MOST_MACHINES = 13
_SUBNETS = 4096
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_MTU = 9000
_BURST = 64
_IPV4 = 4
# Offset of the last byte of the destination in an IPv4 header.
_LAST_OF_DESTINATION = 19


class PacketSwitch:
    """Machines that reach each other, and this one, by their addresses.

    Raises:
        pytest.skip.Exception: namespaces or TUN devices are refused here; the reason is in it.
    """

    def __init__(self, *machines: str) -> None:
        assert len(machines) <= _MOST_MACHINES
        self._machines = [HERE, *machines]
        # A network for each process of tests, of those that are for measurements (RFC 2544).
        subnet = os.getpid() % _SUBNETS
        self.network = _address(subnet, -1) + "/28"
        self._subnet = subnet
        command = [sys.executable, "-P", __file__, str(subnet), str(len(self._machines))]
        self._switch = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._switch.stdout is not None
        words = self._switch.stdout.readline().split()
        if not words or words[0] != READY:
            _, why = self._switch.communicate()
            pytest.skip(f"needs-namespaces: networks of one's own are refused here: {why.strip().splitlines()[-1:]}")
        self._namespaces = words[1:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the network; programs that run on its machines must have ended."""
        self._switch.communicate()  # closes its standard input, at which it ends

    def address(self, machine: str) -> str:
        return _address(self._subnet, self._machines.index(machine))

    def runner(self, machine: str) -> list[str]:
        """Prefix for the command of a program that is to run on a machine; the program keeps its process id."""
        namespace = self._namespaces[self._machines.index(machine)]
        return ["nsenter", f"--net=/proc/{self._switch.pid}/fd/{namespace}"]

    def drop(self, source: str, destination: str, share: float) -> None:
        """Drop a share of the packets from one machine to another."""
        self._order(f"{self._machines.index(source)} {self._machines.index(destination)} {share}")

    def heal(self) -> None:
        """Drop nothing any more."""
        self._order("heal")

    def _order(self, line: str) -> None:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(f"{line}\n")
        assert self._switch.stdout.readline().strip() == READY, "the packet switch has ended"


def _address(subnet: int, number: int) -> str:
    """Return the address of a machine, and with -1 that of its network."""
    last = 16 * subnet + number + 1
    return f"198.19.{last >> 8}.{last & 255}"


class _Switch:
    """Devices of all machines, and the shares of packets to drop between them."""

    def __init__(self, subnet: int, machines: int) -> None:
        self._first = int(_address(subnet, 0).rpartition(".")[2])
        self.namespaces: list[int] = []
        self._devices = [self._device(subnet, number) for number in range(machines)]
        self._loss: dict[tuple[int, int], float] = {}
        self._random = random.Random(subnet)
        self._unread = b""

    def _device(self, subnet: int, number: int) -> int:
        """Open a TUN device in a namespace of its own; the first one stays in that of the tests."""
        if number and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        name = "tun0" if number else f"rb{os.getpid()}"
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_NO_PI))
        for words in (
            ("address", "add", f"{_address(subnet, number)}/28", "dev", name),
            ("link", "set", name, "mtu", str(_MTU), "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        self.namespaces.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        return device

    def run(self) -> None:
        """Forward packets until the end of the standard input."""
        with selectors.DefaultSelector() as selector:
            for number, device in enumerate(self._devices):
                selector.register(device, selectors.EVENT_READ, number)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select():
                    if key.data is not None:
                        self._forward(key.data)
                    elif not self._obey():
                        return

    def _forward(self, source: int) -> None:
        device = self._devices[source]
        for _ in range(_BURST):
            try:
                packet = os.read(device, _MTU + 100)
            except BlockingIOError:
                return
            if packet[0] >> 4 != _IPV4:
                continue
            destination = packet[_LAST_OF_DESTINATION] - self._first
            if not 0 <= destination < len(self._devices):
                continue
            share = self._loss.get((source, destination), 0.0)
            if share and self._random.random() < share:
                continue
            with contextlib.suppress(BlockingIOError):  # a full device loses packets, as a real one does
                os.write(self._devices[destination], packet)

    def _obey(self) -> bool:
        data = os.read(sys.stdin.fileno(), 4096)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            words = line.decode().split()
            if words == ["heal"]:
                self._loss.clear()
            else:
                self._loss[int(words[0]), int(words[1])] = float(words[2])
            print(READY, flush=True)
        return bool(data)


def _main(subnet: str, machines: str) -> None:
    switch = _Switch(int(subnet), int(machines))
    print(READY, *switch.namespaces, flush=True)
    switch.run()


if __name__ == "__main__":
    _main(*sys.argv[1:])
