"""Peers with an address of another machine: a network namespace beside ours, joined to it by a pair of veth devices.

    with OtherMachine() as other:
        subprocess.Popen([*other.runner, "program", f"{other.servers_host}:9876"])    # connects from other.address
        other.connect(other.servers_host, 9876)                                       # so does this socket

Run as a program it is the process that holds the namespace, which ends with it, with both devices.
"""

import ctypes
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

READY = "ready"
_CLONE_NEWNET = 0x40000000
_UP_LIMIT_S = 60.0
_CONNECT_LIMIT_S = 60.0


class OtherMachine:
    """A machine with one address, which reaches this one at ``servers_host``.

    Raises:
        pytest.skip.Exception: namespaces or devices are refused here; the reason is in it.
    """

    def __init__(self) -> None:
        # A network of its own for each process of tests, of those that are for measurements (RFC 2544).
        at = 4 * (os.getpid() % 16_384)
        self.servers_host = f"198.18.{at >> 8}.{(at & 255) + 1}"
        self.address = f"198.18.{at >> 8}.{(at & 255) + 2}"
        self._device = f"rb{os.getpid()}"
        try:
            self._holder = subprocess.Popen(
                ["unshare", "--net", sys.executable, "-P", __file__],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        except FileNotFoundError:
            pytest.skip("needs-namespaces: there is no unshare (util-linux)")
        try:
            self._join()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            why = getattr(error, "stderr", "") or str(error)
            pytest.skip(f"needs-namespaces: a network of one's own is refused here: {why.strip()}")

    def _join(self) -> None:
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != READY:
            _, why = self._holder.communicate()
            raise OSError(why)
        pid, device = str(self._holder.pid), self._device
        _ip("link", "add", device, "type", "veth", "peer", "name", "veth0", "netns", pid)
        _ip("address", "add", f"{self.servers_host}/30", "dev", device)
        _ip("link", "set", device, "up")
        for words in (
            ("address", "add", f"{self.address}/30", "dev", "veth0"),
            ("link", "set", "veth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip(*words, runner=self.runner)
        deadline = time.monotonic() + _UP_LIMIT_S
        while Path(f"/sys/class/net/{device}/operstate").read_text().strip() != "up":
            if time.monotonic() > deadline:
                raise OSError(f"{device} does not come up")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let it go; programs that run on it must have ended."""
        # The kernel takes its time to do so when the namespace ends.
        subprocess.run(["ip", "link", "delete", self._device], check=False, capture_output=True)
        self._holder.communicate()  # closes its standard input, at which it ends

    @property
    def runner(self) -> list[str]:
        """Prefix for the command of a program that is to run there; the program keeps its process id."""
        return ["nsenter", f"--target={self._holder.pid}", "--net"]

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect from there."""
        # A thread of its own: the namespace is left with its end.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._connect, host, port).result()

    def _connect(self, host: str, port: int) -> socket.socket:
        with Path(f"/proc/{self._holder.pid}/ns/net").open("rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return socket.create_connection((host, port), timeout=_CONNECT_LIMIT_S)


def _ip(*words: str, runner: list[str] | None = None) -> None:
    subprocess.run([*(runner or []), "ip", *words], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    print(READY, flush=True)
    sys.stdin.read()
