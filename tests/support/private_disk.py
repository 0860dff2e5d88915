"""A small disk of a test's own: a tmpfs in a user and mount namespace, which nobody else sees and which ends with it.

    with PrivateDisk(64 << 20) as disk:
        subprocess.Popen([*disk.runner, "program", str(disk.path)])   # sees the disk at ``disk.path``
        (disk.seen_from_here / "file").read_bytes()                    # this process has its own way to it

Run as a program it is the process that makes the disk and holds it: ``private_disk.py FOLDER BYTES``.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

READY = "ready"


class PrivateDisk:
    """A disk of ``size`` bytes.

    Raises:
        pytest.skip.Exception: the kernel or its settings refuse namespaces or the mount; the reason is in it.
    """

    def __init__(self, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rocketbroker-disk-")
        self.path = Path(self._folder.name)
        command = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            sys.executable,
            "-P",
            __file__,
            str(self.path),
            str(size),
        ]
        try:
            self._holder = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except FileNotFoundError:
            self._folder.cleanup()
            pytest.skip("needs-namespaces: there is no unshare (util-linux)")
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != READY:
            _, why = self._holder.communicate()
            self._folder.cleanup()
            pytest.skip(f"needs-namespaces: a tmpfs of one's own is refused here: {why.strip().splitlines()[-1:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let it go; programs that run on it must have ended."""
        self._holder.communicate()  # closes its standard input, at which it ends
        self._folder.cleanup()

    @property
    def runner(self) -> list[str]:
        """Prefix for the command of a program that sees the disk; the program keeps its process id."""
        return ["nsenter", f"--target={self._holder.pid}", "--user", "--mount", "--preserve-credentials"]

    @property
    def seen_from_here(self) -> Path:
        """The disk as processes outside the namespace reach it."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")


def _hold(folder: str, size: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    print(READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _hold(*sys.argv[1:])
