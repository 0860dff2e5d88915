"""mqadmin as a process: its start, its exit codes, and servers of another kind, dead or frozen."""

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.our_servers import OurServers
from tests.support.pseudo_terminal import pseudo_terminal
from tests.support.scripted_server import Script, name_server

MQADMIN = [sys.executable, "-m", "rocketbroker.app.mqadmin.cli"]


def run(*args: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*MQADMIN, *args], capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


def unread(*args: str) -> tuple[int, str]:
    """Return the exit code and the errors of a command whose output nobody reads."""
    with subprocess.Popen([*MQADMIN, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        return process.wait(60), said


def test_a_start_imports_neither_pydantic_nor_rich_nor_other_sub_commands():
    code = (
        "import atexit, sys; sys.argv[1:] = ['topicList', '-n', '127.0.0.1:1']; "
        "atexit.register(lambda: print(*sys.modules)); from rocketbroker.app.mqadmin.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, "no name server answers" in done.stderr) == (1, True)
    loaded = set(done.stdout.split())
    assert "rocketbroker.app.mqadmin.topics" in loaded
    late = ("pydantic", "rich", "numpy", "javaproperties", "aiohttp", "rocketbroker.store", "rocketbroker.analytics")
    others = [f"rocketbroker.app.mqadmin.{name}" for name in ("groups", "messages", "bench", "offsets")]
    assert [name for name in (*late, *others) if name in loaded] == []


async def test_ten_thousand_topics_are_listed_within_two_seconds_of_cpu_time():
    names = [f"topic-{number:05}" for number in range(10_000)]
    listed: Script = lambda _fields, _body: response(body=TopicList(names).encode())  # noqa: E731
    async with name_server({}, {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: listed}) as server:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = await asyncio.to_thread(run, "topicList", "-n", server.address)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (done.returncode, done.stdout.split()) == (0, names)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert spent < 2

        assert await asyncio.to_thread(unread, "topicList", "-n", server.address) == (141, "")
        assert await asyncio.to_thread(unread, "--help") == (1, "")  # typer's own


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """A server of another protocol: it answers anything with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                connection.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x01\xff", b"\0\0\0\x10\0\0\0\x02{}"])
def test_a_server_that_is_no_name_server_is_named(answer: bytes):
    with stranger(answer) as address:
        done = run("topicList", "-n", address)

    assert (done.returncode, done.stdout) == (1, "")
    assert "mqadmin: no name server answers: " in done.stderr
    assert address in done.stderr
    assert "Traceback" not in done.stderr


def test_a_frozen_name_server_is_named_within_the_time_limit(servers: OurServers):
    names = servers.namesrv()
    os.kill(names.process.pid, signal.SIGSTOP)
    try:
        done = run("topicList", "-n", names.address)
    finally:
        os.kill(names.process.pid, signal.SIGCONT)

    assert (done.returncode, done.stdout) == (1, "")
    assert names.address in done.stderr
    assert re.search(r"within (5|4\.\d+) s", done.stderr)


def test_ctrl_c_ends_a_watch_with_130(servers: OurServers):
    names = servers.namesrv()
    command = [*MQADMIN, "topicList", "--watch", "0.2", "-n", names.address]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    assert "Every 0.2 s until Ctrl-C" in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    _, said = watch.communicate(timeout=60)

    assert (watch.returncode, said.strip()) == (130, "")


def test_a_terminal_of_40_columns_shows_whole_summaries():
    with pseudo_terminal() as (terminal, shown):
        environment = {**os.environ, "COLUMNS": "40"}
        subprocess.run([*MQADMIN, "--help"], stdout=terminal, timeout=60, check=True, env=environment)

    lines = shown.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 50  # click makes help no narrower
    at = lines.index("  topicRoute")
    assert lines[at + 1].strip() == "Show the route of a topic."
