"""A JVM under a test's control: wait for its output, freeze, kill or stop it; wait for a broker to register."""

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.java_toolchain import JavaError
from tests.support.ports import LOOPBACK

BOOT_LIMIT = 120  # seconds, on a machine that may have other work
STOP_LIMIT = 60  # Apache's broker takes about 20 to end in order

# GET_BROKER_CLUSTER_INFO (106) as a frame: total length, header length, JSON header.
_HEADER = b'{"code":106,"flag":0,"language":"OTHER","opaque":1,"serializeTypeCurrentRPC":"JSON","version":0}'
CLUSTER_INFO_REQUEST = struct.pack(">II", len(_HEADER) + 4, len(_HEADER)) + _HEADER


def cluster_info(namesrv: str) -> str:
    """Return the answer of a name server at "host:port" to GET_BROKER_CLUSTER_INFO as text."""
    host, _, port = namesrv.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=BOOT_LIMIT) as link, link.makefile("rb") as stream:
        link.sendall(CLUSTER_INFO_REQUEST)
        (length,) = struct.unpack(">I", stream.read(4))
        return stream.read(length).decode(errors="replace")


def wait_registered(broker: str, namesrvs: str, limit: float = BOOT_LIMIT) -> None:
    """Wait until each of the name servers ("host:port;host:port") knows the broker's address."""
    deadline = time.monotonic() + limit
    for namesrv in namesrvs.split(";"):
        while f'"{broker}"' not in cluster_info(namesrv):
            if time.monotonic() > deadline:
                raise JavaError(f"the broker {broker} is not registered at {namesrv} after {limit:.0f} s")
            time.sleep(0.05)


@dataclass(slots=True)
class JavaProcess:
    """A running JVM whose output goes to a file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def lines(self) -> list[str]:
        return self.text().splitlines()

    def wait_for(self, text: str, limit: float = BOOT_LIMIT) -> str:
        """Wait for a line with `text` and return it; raise an error with the output if the process ends or is late."""
        deadline = time.monotonic() + limit
        while True:
            ended = self.process.poll()
            for line in self.lines():
                if text in line:
                    return line
            if ended is not None or time.monotonic() > deadline:
                why = f"ended with {ended}" if ended is not None else f"did not within {limit:.0f} s"
                raise JavaError(f"{self.name} was to print {text!r} and {why}:\n{self.text()[-4000:]}")
            time.sleep(0.05)

    def wait_until(self, condition: Callable[[], bool], limit: float, what: str) -> None:
        """Wait for a condition that this process brings about; its end or a timeout is an error."""
        deadline = time.monotonic() + limit
        while not condition():
            ended = self.process.poll()
            if ended is not None or time.monotonic() > deadline:
                why = f"ended with {ended}" if ended is not None else f"did not within {limit:.0f} s"
                raise JavaError(f"{self.name} was to {what} and {why}:\n{self.text()[-4000:]}")
            time.sleep(0.05)

    def wait(self, limit: float = 60) -> int:
        return self.process.wait(limit)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in order (SIGTERM), or by force when it does not; returns the exit status."""
        if self.process.poll() is None:
            self.thaw()
            self.process.terminate()
            try:
                self.process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()


@dataclass(slots=True)
class JavaServer(JavaProcess):
    """Apache's own name server or broker."""

    port: int = 0
    store: Path = Path()  # storePathRootDir of a broker
    host: str = LOOPBACK

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"
