"""Servers of ours without the imports: a process that has imported them forks one for each command.

Importing takes half a second of processor time, most of a start. The process is single-threaded, so that forking it is
safe; a child has the variables, folder and output of its command, and runs ``main`` of its module as the console script
does. Who measures a start, or runs a command under another, starts it afresh.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

MODULES = (
    "rocketbroker.app.broker_startup",
    "rocketbroker.app.namesrv_startup",
    "rocketbroker.app.proxy_startup",
)
# Imported by these only once they run.
_LATER = (
    "rocketbroker.app.broker_controller",
    "rocketbroker.app.namesrv_controller",
    "rocketbroker.store.index.index_file",
    "rocketbroker.codec.message.columns",
    "rocketbroker.codec.message.alike_messages",
    "rocketbroker.store.commitlog.append_batches",
)
_MESSAGE_BYTES = 1 << 16
_LONGEST_PAUSE_S = 0.05


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that another one forked: ``poll`` and ``wait`` learn its status from that one."""

    def __init__(self, parent: "WarmPython", command: Sequence[str], pid: int) -> None:
        self.args, self.pid, self.returncode = list(command), pid, None
        self.stdin = self.stdout = self.stderr = None
        self._parent = parent

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        if self.returncode is None:
            self.returncode = self._parent.status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit status.

        Raises:
            subprocess.TimeoutExpired: It still runs after ``timeout`` seconds.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (status := self.poll()) is None:
            if ends is not None and time.monotonic() > ends:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            time.sleep(pause)
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, sig)


class WarmPython:
    """Forks processes for this one; ends with it, or with ``close``."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._statuses: dict[int, int] = {}
        self._lock = threading.Lock()

    def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], out: IO[bytes]
    ) -> ForkedProcess:
        """Start a command that ``is_warm`` with its output and errors in a file.

        Raises:
            EOFError: The process that forks has ended.
        """
        request = json.dumps({"command": [*command[3:]], "folder": str(folder), "environment": dict(environment)})
        with self._lock:
            socket.send_fds(self._control, [request.encode()], [out.fileno()])
            while "pid" not in (answer := self._receive()):
                self._note(answer)
            self._statuses.pop(answer["pid"], None)  # of another process that had this id
        return ForkedProcess(self, command, answer["pid"])

    def status(self, pid: int) -> int | None:
        """Return the exit status of a process that it started, None while that runs."""
        with self._lock:
            while pid not in self._statuses and select.select([self._control], [], [], 0)[0]:
                self._note(self._receive())
            return self._statuses.pop(pid, None)

    def close(self) -> None:
        """End it and wait; processes that it started run on."""
        self._control.close()
        self._process.wait()

    def _receive(self) -> dict[str, int]:
        data = self._control.recv(_MESSAGE_BYTES)
        if not data:
            raise EOFError(f"the process that forks servers ended with {self._process.wait()}")
        answer: dict[str, int] = json.loads(data)
        return answer

    def _note(self, answer: dict[str, int]) -> None:
        self._statuses[answer["ended"]] = answer["status"]


def is_warm(command: Sequence[str]) -> bool:
    """Return true for ``python -P -m`` of a server whose modules are imported already."""
    return sys.platform == "linux" and [*command[:3]] == [sys.executable, "-P", "-m"] and command[3] in MODULES


@cache
def warm_python() -> WarmPython:
    """Return the one of this process; the first call starts it."""
    made = WarmPython()
    atexit.register(made.close)
    return made


def _serve(control: socket.socket) -> list[str]:
    """Fork a child for each request until the other end closes; return the command in the child, nothing here."""
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(_MESSAGE_BYTES)
            for answer in _ended():
                control.send(json.dumps(answer).encode())
        if control in ready:
            data, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
            if not data:
                return []
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for each in (control, woken, wake):
                    each.close()
                return _become(json.loads(data), fds[0])
            os.close(fds[0])
            control.send(json.dumps({"pid": pid}).encode())


def _ended() -> list[dict[str, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append({"ended": ended[0], "status": os.waitstatus_to_exitcode(ended[1])})
    return found


def _become(request: dict[str, object], out: int) -> list[str]:
    """Take on the folder, variables and output of a command, and return it."""
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.chdir(str(request["folder"]))
    variables, command = request["environment"], request["command"]
    assert isinstance(variables, dict)
    assert isinstance(command, list)
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command


def main() -> None:
    """Import the servers, then fork one for each request on the descriptor that is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this process
    for module in (*MODULES, *_LATER):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    command = _serve(socket.socket(fileno=int(sys.argv[1])))
    if command:
        sys.argv = command
        importlib.import_module(command[0]).main()


if __name__ == "__main__":
    main()
