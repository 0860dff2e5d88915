"""Servers without the calls that Linux alone has, and clients without those of POSIX, on plain asyncio."""

import subprocess
import sys
from pathlib import Path

from rocketbroker.codec.remoting.bodies.offset import ResetOffsetBody
from rocketbroker.testing import RocketMQServer

# As on macOS: no posix_fallocate, fdatasync, populated pages, mincore, msync that syncs a file, list of locks.
WITHOUT_LINUX = """
import asyncio, os, sys
from pathlib import Path
del os.posix_fallocate, os.fdatasync
sys.modules["uvloop"] = None
system, sys.platform = sys.platform, "darwin"
from rocketbroker.common import platform
sys.platform = system
platform.LOCKS = Path("gone")
platform.MS_SYNC = 4  # the kernel below is Linux
platform.mincore = platform.madvise = platform.libc_function("no_such_function")
"""
# As on Windows: also no fcntl, resource, C library, files read or written by position, or folders that can be opened.
WITHOUT_POSIX = """
import asyncio, ctypes, os, sys
for name in ("posix_fallocate", "fdatasync", "pread", "preadv", "pwrite", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK",
             "dup", "fork", "register_at_fork", "getuid", "statvfs", "sysconf"):
    delattr(os, name)
for name in ("fcntl", "resource", "uvloop"):
    sys.modules[name] = None
class NoLibrary:
    def __init__(self, *arguments, **options):
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
ctypes.CDLL = NoLibrary
asyncio.AbstractEventLoop.add_signal_handler = None
"""
SERVER = """
from rocketbroker.client import LitePullConsumer, Message, Producer
from rocketbroker.testing import RocketMQServer

async def send(mq, *bodies):
    async with Producer("orders", mq.namesrv_addr) as producer:
        for body in bodies:
            await producer.send(Message("Orders", body))

with RocketMQServer({"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "65536"}) as mq:
    bodies = [b"order %d" % number + bytes(3000) for number in range(40)]  # several files
    asyncio.run(send(mq, *bodies[:20]))
    mq.restart_broker(lose_unflushed=True)
    asyncio.run(send(mq, *bodies[20:]))
    mq.restart_broker()
    mq.assert_messages("Orders", bodies)
    print(len(list((mq.store / "commitlog").iterdir())) > 1)
"""
CLIENT = """
from pathlib import Path
import time
from rocketbroker.client import (
    AdminClient, ClientConfig, ConsumeFromWhere, LocalFileOffsetStore, Message, MessageModel, Producer, PushConsumer,
    SyncClient
)
address, folder = sys.argv[1:]

async def main():
    async with (
        Producer("orders", ClientConfig(address, heartbeat_broker_interval_s=0.02)) as producer,
        PushConsumer("billing", address) as one,
        PushConsumer(
            "screens",
            address,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            offset_store=LocalFileOffsetStore(Path(folder, "offsets.json")),
        ) as each,
    ):
        await one.subscribe("Orders")
        await each.subscribe("Orders")
        await producer.send(Message("Orders", b"order 7"))
        for consumer in (one, each):
            async for message in consumer:
                print(message.body.decode())
                break
        time.sleep(0.5)  # heartbeats continue
        await asyncio.sleep(0)
    async with AdminClient(address) as admin:
        print(*await admin.fetch_master_addresses("DefaultCluster"))

asyncio.run(main())
sync = SyncClient()  # closed by the end of the interpreter
left = sync.open(
    PushConsumer(
        "walls",
        address,
        message_model=MessageModel.BROADCASTING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        offset_store=LocalFileOffsetStore(Path(folder, "left.json")),
    )
)
sync.call(left.subscribe("Orders"))
for message in sync.messages(left):
    print(message.body.decode())
    break
"""


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_a_store_keeps_its_promise_without_the_calls_of_linux():
    assert run(WITHOUT_LINUX + SERVER) == "True\n"


def test_a_client_works_without_the_calls_of_posix(tmp_path: Path):
    with RocketMQServer() as mq:
        printed = run(WITHOUT_POSIX + CLIENT, mq.namesrv_addr, str(tmp_path))

    assert printed == "order 7\norder 7\nbroker-a\norder 7\n"
    assert (tmp_path / "offsets.json").exists()
    offsets = ResetOffsetBody.decode((tmp_path / "left.json").read_bytes()).offset_table
    assert sum(offsets.values()) == 1
