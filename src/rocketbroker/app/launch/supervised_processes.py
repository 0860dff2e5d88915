"""Servers as child processes: started in order, started again when one ends by itself, and stopped together.

The counterpart of RocketMQ's BrokerContainer, which hosts several brokers in one process. One Python process uses one
core, so that each broker gets a process here.
"""

import asyncio
import ctypes
import logging
import os
import re
import runpy
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import TaskOwner, uninterrupted
from rocketbroker.common.platform import libc_function

log = logging.getLogger(__name__)

BOOT_LIMIT_S: Final = 120.0
RESTART_S: Final = 5.0
_STOP_LIMIT_S: Final = 60.0
# Line by which mqbroker and mqnamesrv say that they serve, with their address.
_BOOTED: Final = re.compile(r"boot success\b")
_ADDRESS: Final = re.compile(r"\[[^,\]]*, ([^\]]+)\] boot success|boot success.*address (\S+)")
_LONGEST_LINE: Final = 1 << 20


class Program(NamedTuple):
    """A server to run: its name in status lines, its module, and the arguments of its command."""

    name: str
    module: str
    arguments: Sequence[str]


class _Child:
    """A program and its process, if it runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: Process | None = None
        # Ends with the process.
        self.watched: asyncio.Task[None] | None = None
        self.address = ""
        self.booted = asyncio.Event()
        self.last_line = ""


class SupervisedProcesses:
    """Runs programs until ``stop``.

    Args:
        programs: the programs, in the order of their start; ``add`` may follow.
        show: takes lines of status, and those that the children print.
        environment: environment variables of the programs, unless this process has others.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        show: Callable[[str], None],
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._environment = environment
        self._children = [_Child(program) for program in programs]
        self._print = show
        self._tasks = TaskOwner("SupervisedProcesses")
        self._stops = asyncio.Event()
        # Held while a process is made, so that ``stop`` misses none.
        self._launching = asyncio.Lock()

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each program by its name, once it serves."""
        return {child.program.name: child.address for child in self._children}

    @property
    def process_ids(self) -> dict[str, int]:
        """Process id of each running program by its name."""
        return {child.program.name: child.process.pid for child in self._children if child.process is not None}

    async def start(self) -> None:
        """Start all programs, each once the one before serves.

        Raises:
            ConfigError: One of them ended, or does not serve in time; all are stopped.
        """
        try:
            for child in self._children:
                await self._start(child)
        except BaseException:
            await self.stop()
            raise

    async def add(self, program: Program) -> str:
        """Start one more program; return its address once it serves.

        Raises:
            ConfigError: It ended, or does not serve in time.
        """
        child = _Child(program)
        self._children.append(child)
        await self._start(child)
        return child.address

    async def _start(self, child: _Child) -> None:
        async with self._launching:
            running = await self._launch(child)
        booted = self._tasks.start(_wait(child.booted), f"boot of {child.program.name}")
        await asyncio.wait((booted, running), timeout=BOOT_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        booted.cancel()
        if not child.booted.is_set():
            raise ConfigError(f"{child.program.name} does not start: {child.last_line or 'it printed nothing'}")
        self._tasks.forever(partial(self._keep, child), f"keep {child.program.name}")

    async def _launch(self, child: _Child) -> asyncio.Task[None]:
        module, arguments = child.program.module, child.program.arguments
        child.booted.clear()
        child.process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-P",
                "-m",
                "rocketbroker.app.launch.supervised_processes",
                str(os.getpid()),
                module,
                *arguments,
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            limit=_LONGEST_LINE,
            env={**self._environment, **os.environ},
            # Ctrl-C in the terminal goes to this process alone, which stops the children in order.
            start_new_session=True,
        )
        child.watched = self._tasks.start(self._watch(child), child.program.name)
        return child.watched

    async def _watch(self, child: _Child) -> None:
        """Pass on what a child prints, until it ends."""
        process, name = child.process, child.program.name
        assert process is not None
        assert process.stdout is not None
        while data := await process.stdout.readline():
            line = data.decode(errors="replace").rstrip()
            child.last_line = line or child.last_line
            if not _BOOTED.search(line):
                self._show(f"[{name}] {line}")
                continue
            found = _ADDRESS.search(line)
            child.address = (found[1] or found[2]) if found else ""
            child.booted.set()
            self._show(f"{name:<14} {child.address:<22} ready, process {process.pid}")
        await process.wait()
        child.process = None

    def _show(self, line: str) -> None:
        """Show a line; without a terminal that takes it the programs run on."""
        try:
            self._print(line)
        except (OSError, ValueError) as error:
            log.warning("SupervisedProcesses: status lines cannot be printed any more: %s", error)
            self._print = log.info

    async def _keep(self, child: _Child) -> None:
        """Start a child again whenever it ends."""
        while True:
            process = child.process
            if child.watched is not None:
                await asyncio.wait((child.watched,))
            if self._stops.is_set():
                return
            code = process.returncode if process is not None else None
            self._show(
                f"{child.program.name:<14} {child.address:<22} ended with {_cause(code)}, next start in {RESTART_S:g} s"
            )
            await asyncio.sleep(RESTART_S)
            async with self._launching:
                if self._stops.is_set():
                    return
                await self._launch(child)

    async def stop(self) -> None:
        """Stop all programs, the last one first, also if the caller is cancelled: nobody else would end them."""
        await uninterrupted(self._stop())

    async def _stop(self) -> None:
        self._stops.set()
        async with self._launching:
            pass  # Nothing is launched from now on.
        for child in reversed(self._children):
            if (process := child.process) is None or process.returncode is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_STOP_LIMIT_S):
                    await process.wait()
            except TimeoutError:
                self._show(f"{child.program.name} does not stop within {_STOP_LIMIT_S:g} s, and is killed")
                process.kill()
                await process.wait()
            child.process = None
            self._show(f"{child.program.name:<14} {child.address:<22} stopped")
        await self._tasks.stop()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _cause(code: int | None) -> str:
    if code is None:
        return "an unknown code"
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


_PR_SET_PDEATHSIG: Final = 1
_prctl = libc_function("prctl", ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def main() -> None:
    """Ask for SIGTERM at the parent's end, then run the module; without the call a killed parent leaves its children.

    Arguments: process id of the parent, module, arguments of the module.
    """
    parent = int(sys.argv[1])
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
