"""mqadmin tail, export, import and resendDlq at running brokers: what arrives, interruptions, and bad input."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from typer.testing import CliRunner

from rocketbroker.app.mqadmin import access
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.resend_record import RecordLine
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.testing import RocketMQServer
from rocketbroker.testing.faults import PULLS
from tests.support.admin_schemas import checked
from tests.support.waiting import until

SETTINGS = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
COUNT = 250


class Ran(NamedTuple):
    """Outcome of a command."""

    code: int
    out: str
    err: str


class Place:
    """A broker with topics T and Copy of two queues, and mqadmin to run there."""

    def __init__(self, mq: RocketMQServer, folder: Path) -> None:
        self.mq = mq
        self.folder = folder

    async def run(self, *words: str) -> Ran:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-n", self.mq.namesrv_addr])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Ran(done.exit_code, done.stdout, " ".join(done.stderr.split()))

    async def json(self, *words: str) -> Any:
        ran = await self.run(*words, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return checked(words[0], json.loads(ran.out))

    def start(self, *words: str, stdin: int | None = None, runner: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start mqadmin as a process, with ``runner`` before its command line; its output is a pipe."""
        command = [*runner, sys.executable, "-m", "rocketbroker.app.mqadmin.cli", *words]
        environment = {**os.environ, "NAMESRV_ADDR": self.mq.namesrv_addr}
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self.folder,
        )

    async def fill(self, count: int = COUNT) -> None:
        async with Producer("PG", self.mq.namesrv_addr) as producer:
            for number in range(count):
                message = Message(
                    "T",
                    b"body %d" % number,
                    tags="A" if number % 2 else "B",
                    keys=f"k{number}",
                    properties={"number": str(number)},
                    flag=number,
                )
                await producer.send(message, MessageQueue("T", "broker-a", number % 2))

    async def messages(self, topic: str) -> list[MessageExt]:
        """Return the messages of a topic, by queue and offset."""
        found = []
        async with AdminClient(self.mq.namesrv_addr) as admin:
            for queue in await admin.readable_queues(topic):
                end = await admin.queue_max_offset(queue)
                found += [m async for result in admin.read_messages(queue, 0, end) for m in result.messages]
        return found


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with RocketMQServer(SETTINGS) as mq:
        async with AdminClient(mq.namesrv_addr) as admin:
            for topic in ("T", "Copy"):
                await admin.create_and_update_topic_config(mq.broker_addr, TopicConfig(topic, 2, 2))
        yield Place(mq, tmp_path)


def kept(message: MessageExt) -> tuple[Any, ...]:
    """The parts of a message that an import keeps, with its queue."""
    own = message.properties.get("number")
    return message.queue_id, message.body, message.tags, tuple(message.keys), message.flag, own


# -- tail


async def test_tail_follows_and_ends_quietly(place: Place):
    await place.fill(4)
    process = place.start("tail", "T", "--json", "--last", "1")
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(2)]
    rows = [checked("tail", json.loads(line)) for line in lines]
    assert {row["body"] for row in rows} == {"body 2", "body 3"}
    async with Producer("PG", place.mq.namesrv_addr) as producer:
        await producer.send(Message("T", b'{"a": [1]}', keys="new"))
    row = json.loads(await asyncio.to_thread(process.stdout.readline))
    assert (row["keys"], row["body"]) == (["new"], {"a": [1]})
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert (process.returncode, err) == (130, b"")


async def test_tail_into_a_closed_pipe_ends_quietly(place: Place):
    await place.fill(4)
    process = place.start("tail", "T", "--last", "1")
    assert process.stdout is not None
    assert process.stderr is not None
    await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    await place.fill(2)
    err = await asyncio.to_thread(process.stderr.read)
    process.stderr.close()
    assert (await asyncio.to_thread(process.wait, 20), err) == (141, b"")


async def test_tail_selects_and_decodes(place: Place):
    await place.fill(10)
    tail = ("tail", "T", "--last", "100", "--no-follow")
    assert len((await place.run(*tail)).out.splitlines()) == 10
    assert len((await place.run(*tail, "-s", "A")).out.splitlines()) == 5
    assert (await place.run(*tail, "--sql", "number = '3'")).out.split()[-4:] == ["A", "k3", "body", "3"]
    assert len((await place.run(*tail, "--key", "k7")).out.splitlines()) == 1
    assert (await place.run(*tail, "--count", "3")).out.count("\n") == 3
    shown = await place.run(*tail, "--key", "k7", "--body", "hex")
    assert shown.out.split()[-1] == b"body 7".hex()
    queue = ("-b", "broker-a", "-q", "0")
    assert len((await place.run("tail", "T", *queue, "-o", "2", "--no-follow")).out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--sql", "a = = 1"), "'=' is not allowed here"),
        (("-s", "a > 5"), "looks like SQL; give it by --sql"),
        (("-s", "A", "--sql", "a = '1'"), "give either -s (tags) or --sql"),
        (("-o", "1"), "-o (offset) needs -b (broker) and -q (queue)"),
        (("-q", "1"), "-q (queue) needs -b"),
        (("--last", "1", "--from", "now"), "give one of --from, --last and -o"),
        (("--body", "xml"), "'xml' is not one of"),
        (("--charset", "klingon"), "charset 'klingon' is unknown"),
        (("--from", "yesterday"), "'yesterday' is not a time"),
    ],
)
async def test_wrong_options_of_tail_are_explained(place: Place, words: tuple[str, ...], reason: str):
    ran = await place.run("tail", "T", *words)
    assert ran.code == 2
    assert reason in ran.err.replace("│ ", "")


async def test_unknown_topics_and_brokers_are_named(place: Place):
    for words in (("tail", "None"), ("export", "None", "--to", str(place.folder / "x"))):
        ran = await place.run(*words)
        assert (ran.code, "None" in ran.err) == (1, True)
    assert "there are broker-a" in (await place.run("tail", "T", "-b", "broker-x")).err


# -- export and import


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_messages_are_exported_and_imported_in_order(place: Place, form: str):
    await place.fill()
    target = place.folder / f"t.{form}"
    done = await place.json("export", "T", "--to", str(target))
    assert (done["messages"], done["format"]) == (COUNT, form)
    assert [path.name for path in place.folder.iterdir()] == [target.name]
    counted = await place.json("import", str(target), "--to-topic", "T=Copy", "--dry-run")
    assert (counted["dryRun"], counted["sent"]) == (True, {"Copy": COUNT})
    assert await place.messages("Copy") == []
    assert (await place.json("import", str(target), "--to-topic", "T=Copy"))["sent"] == {"Copy": COUNT}
    assert list(map(kept, await place.messages("Copy"))) == list(map(kept, await place.messages("T")))
    assert [path.name for path in place.folder.iterdir()] == [target.name]


async def test_an_export_selects_by_time_key_and_expression(place: Place):
    await place.fill(10)
    sixth = (await place.messages("T"))[2]  # number 4
    out = ("export", "T", "--to", "-")
    for words, numbers in (
        (("--key", "k3"), {3}),
        (("-s", "A"), {1, 3, 5, 7, 9}),
        (("--sql", "number = '8'"), {8}),
        (("--until", "1000"), set()),
        (("--from", "2999-01-01"), set()),
        (("--from", str(sixth.store_timestamp - 1000)), set(range(10))),
    ):
        ran = await place.run(*out, *words)
        assert {json.loads(line)["flag"] for line in ran.out.splitlines()} == numbers, words
    early = await place.run(*out, "--until", str(sixth.store_timestamp))
    assert all(json.loads(line)["store_timestamp"] < sixth.store_timestamp for line in early.out.splitlines())


async def test_a_killed_export_continues_without_a_row_missing_or_twice(place: Place):
    await place.fill()
    target = place.folder / "t.jsonl"
    whole = place.folder / "whole.jsonl"
    await place.run("export", "T", "--to", str(whole))
    # As a kill leaves it: rows behind the state, the last one cut off.
    lines = whole.read_bytes().splitlines(keepends=True)
    part, state = place.folder / "t.jsonl.part", place.folder / "t.jsonl.part.state"
    part.write_bytes(b"".join(lines[:70]) + lines[70][:20])
    size = len(b"".join(lines[:64]))
    options = {"topics": ["T"], "format": "jsonl", "from": None, "until": "now", "key": None, "tags": None, "sql": None}
    ends = [{"topic": "T", "brokerName": "broker-a", "queueId": each, "next": 0, "end": 125} for each in (0, 1)]
    ends[0]["next"] = 64
    state.write_text(
        json.dumps({"options": options, "mark": size, "rows": 64, "queues": ends, "times": [None, 1 << 42]})
    )
    command = ("export", "T", "--to", str(target), "--until", "now")
    plain = await place.run(*command)
    assert plain.code == 2
    assert "was interrupted after 64 messages; continue it by --resume" in plain.err
    other = await place.run(*command, "--resume", "--key", "k1")
    assert "was begun with key None, now it is 'k1'" in other.err
    done = await place.json(*command, "--resume")
    assert done["messages"] == COUNT
    assert target.read_bytes() == whole.read_bytes()
    assert not state.exists()
    again = await place.run("export", "T", "--to", str(target))
    assert "exists already" in again.err


@pytest.mark.long
async def test_an_interrupted_import_continues_without_a_message_missing_or_twice(place: Place):
    await place.fill()
    target = place.folder / "t.jsonl"
    await place.run("export", "T", "--to", str(target))
    process = place.start("import", "t.jsonl", "--to-topic", "T=Copy", "--rate", "200", "--until", "now")
    await until_async(lambda: place.messages("Copy"))
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 130
    assert b"continue by --resume" in err
    assert b"Traceback" not in err
    command = ("import", str(target), "--to-topic", "T=Copy", "--until", "now")
    plain = await asyncio.to_thread(place.start(*command).communicate, timeout=20)
    assert b"was interrupted after" in plain[1]
    resumed = place.start(*command, "--resume")
    _, err = await asyncio.to_thread(resumed.communicate, timeout=60)
    assert (resumed.returncode, err) == (0, b"")
    found = Counter(message.body for message in await place.messages("Copy"))
    assert found.keys() == {b"body %d" % number for number in range(COUNT)}
    # Those in flight, one of each queue, may come twice: whether they had arrived nobody knows.
    assert sum(found.values()) <= COUNT + 2
    assert not (place.folder / "t.jsonl.import").exists()


async def test_a_full_disk_ends_an_export_that_continues_once_there_is_room(place: Place):
    await place.fill()
    whole, target = place.folder / "whole.jsonl", place.folder / "t.jsonl"
    await place.run("export", "T", "--to", str(whole))
    # The limit is in the middle of a row of the second pull.
    limited = ("sh", "-c", f'ulimit -f {whole.stat().st_size // 3 // 512}; exec "$@"', "sh")
    full = place.start("export", "T", "--to", "t.jsonl", runner=limited)
    _, err = await asyncio.to_thread(full.communicate, timeout=20)
    text = " ".join(err.decode().split())
    assert full.returncode == 1
    assert "what was read is in t.jsonl.part; continue by --resume" in text
    assert text.endswith("--to t.jsonl: File too large")
    assert not target.exists()
    assert (await place.json("export", "T", "--to", str(target), "--resume"))["messages"] == COUNT
    assert target.read_bytes() == whole.read_bytes()
    assert sorted(each.name for each in place.folder.iterdir()) == ["t.jsonl", "whole.jsonl"]


@pytest.mark.long
async def test_a_topic_of_two_brokers_is_moved_whole_in_spite_of_ctrl_c(tmp_path: Path):
    async with RocketMQServer(brokers=2) as mq:
        place = Place(mq, tmp_path)
        queues = [(name, number) for name in mq.broker_names for number in (0, 1)]
        async with AdminClient(mq.namesrv_addr) as admin:
            for address in (await admin.fetch_master_addresses("DefaultCluster")).values():
                for topic in ("T", "Copy"):
                    await admin.create_and_update_topic_config(address, TopicConfig(topic, 2, 2))
        async with Producer("PG", mq.namesrv_addr) as producer:
            for number in range(120):
                name, queue_id = queues[number % 4]
                await producer.send(Message("T", b"%d" % number), MessageQueue("T", name, queue_id))
        mq.faults.delay_answers(0.1, times=None, to=PULLS)
        state = tmp_path / "t.jsonl.part.state"
        err = await interrupted(place, state.exists, "export", "T", "--to", "t.jsonl")
        assert b"what was read is in t.jsonl.part; continue by --resume" in err
        mq.faults.clear()
        done = await place.json("export", "T", "--to", str(tmp_path / "t.jsonl"), "--resume")
        assert done["messages"] == 120

        command = ("import", "t.jsonl", "--to-topic", "T=Copy")
        err = await interrupted(place, lambda: mq.messages("Copy"), *command, "--rate", "200")
        assert b"messages are sent; continue by --resume" in err
        await place.json("import", str(tmp_path / "t.jsonl"), *command[2:], "--resume")
        copies = await place.messages("Copy")
    assert {message.body for message in copies} == {b"%d" % number for number in range(120)}
    assert len(copies) <= 120 + 4, "those in flight, one of each queue, may come twice"


async def interrupted(place: Place, begun: Callable[[], object], *words: str) -> bytes:
    """Start mqadmin, press Ctrl-C once it has begun its work, and return what it says."""
    process = place.start(*words)
    await until(begun)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in err
    return err


@pytest.mark.long
async def test_a_killed_import_sends_at_most_a_batch_twice(place: Place):
    await place.fill()
    target = place.folder / "t.jsonl"
    await place.run("export", "T", "--to", str(target))
    process = place.start("import", "t.jsonl", "--to-topic", "T=Copy", "--rate", "300")

    async def second_batch() -> bool:
        return len(await place.messages("Copy")) > 120

    await until_async(second_batch)
    process.kill()
    await asyncio.to_thread(process.communicate, timeout=20)
    resumed = place.start("import", "t.jsonl", "--to-topic", "T=Copy", "--resume")
    _, err = await asyncio.to_thread(resumed.communicate, timeout=60)
    assert (resumed.returncode, err) == (0, b"")
    found = Counter(message.body for message in await place.messages("Copy"))
    assert found.keys() == {b"body %d" % number for number in range(COUNT)}
    assert sum(found.values()) <= COUNT + 100


async def until_async(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the condition is a broker's
            await asyncio.sleep(0.02)


async def test_lines_that_are_no_messages_are_left_out_and_named(place: Place):
    file = place.folder / "t.jsonl"
    await place.fill(2)
    await place.run("export", "T", "--to", str(file))
    file.write_bytes(file.read_bytes() + b'{"other": 1}\n{"broker": "br')
    ran = await place.run("import", str(file), "--to-topic", "T=Copy")
    assert ran.code == 1
    assert "2 lines are no messages of an export" in ran.err
    assert len(await place.messages("Copy")) == 2


async def test_wrong_sources_and_targets_are_explained(place: Place):
    missing = str(place.folder / "none")
    for words, reason in (
        (("import", missing), "does not exist; give a file or a folder"),
        (("import", str(place.folder)), "has no file of exported messages"),
        (("import", missing, "--to-topic", "T"), "give OLD=NEW"),
        (("import", "-", "--resume"), "cannot be resumed"),
        (("export", "T", "--to", "-", "--format", "parquet"), "writes JSON lines to stdout"),
        (("export", "T", "--to", missing, "--resume"), "there is no interrupted export"),
        (("export", "T", "--to", f"{missing}.gz"), "an export is not compressed"),
        (("export", "T", "--to", missing, "-s", "||"), "names no tag"),
        (("export", "T", "--to", missing, "--key", ""), "-k is empty"),
        (("export", "T", "--to", missing, "--format", "csv"), "use jsonl or parquet"),
        (("export", "T", "--to", f"{missing}/x/y"), "No such file"),
        (("export", "T", "--to", missing, "--from", "2026-01-02", "--until", "2026-01-01"), "--from is not before"),
    ):
        ran = await place.run(*words)
        assert ran.code in {1, 2}
        assert reason in ran.err.replace("│ ", ""), ran


async def test_an_export_of_a_topic_that_was_created_again_is_not_resumed(place: Place):
    await place.fill(8)
    target = place.folder / "t.jsonl"
    whole = place.folder / "whole.jsonl"
    assert (await place.json("export", "T", "T", "--to", str(whole)))["messages"] == 8, (
        "a topic given twice counts once"
    )
    lines = whole.read_bytes().splitlines(keepends=True)
    options = {"topics": ["T"], "format": "jsonl", "from": None, "until": None, "key": None, "tags": None, "sql": None}
    queues = [
        {"topic": "T", "brokerName": "broker-a", "queueId": 0, "next": 2, "end": 4, "lastOffset": 1},
        {"topic": "T", "brokerName": "broker-a", "queueId": 1, "next": 0, "end": 4},
    ]
    state = place.folder / "t.jsonl.part.state"
    part = place.folder / "t.jsonl.part"
    for changed, refused in (
        ({"lastMsgId": json.loads(lines[1])["msg_id"]}, False),
        ({"lastMsgId": "7F00000100002A9F0000000000000000"}, True),
        ({"next": 90, "end": 100}, True),
    ):
        part.write_bytes(b"".join(lines[:2]))
        mark = part.stat().st_size
        saved = {"options": options, "mark": mark, "rows": 2, "queues": [{**queues[0], **changed}, queues[1]]}
        state.write_text(json.dumps(saved))
        ran = await place.run("export", "T", "--to", str(target), "--resume")
        assert ran.code == (2 if refused else 0), ran
        if refused:
            assert "topic T was created again since this export began" in ran.err
        else:
            assert target.read_bytes() == whole.read_bytes()
            target.unlink()


async def test_an_import_of_a_terminal_can_be_interrupted(place: Place):
    process = place.start("import", "-", stdin=subprocess.PIPE)
    await place.fill(2)
    row = (await place.run("export", "T", "--to", "-")).out.splitlines()[0].replace('"T"', '"Copy"')
    assert process.stdin is not None
    process.stdin.write(f"{row}\n".encode() * 100)
    process.stdin.flush()
    await until_async(lambda: place.messages("Copy"))
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait, 20) == 130
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


async def test_a_source_is_imported_by_one_run_at_a_time(place: Place):
    await place.fill(2)
    file = place.folder / "t.jsonl"
    await place.run("export", "T", "--to", str(file))
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = await place.run("import", str(file), "--to-topic", "T=Copy")
    assert (ran.code, "is in use by another run of mqadmin" in ran.err.replace("│ ", "")) == (2, True)


# -- resendDlq


async def dead_letters(place: Place, count: int, group: str = "CG") -> None:
    """Let a group make dead letters of all messages of T."""
    await place.fill(count)

    async def refuse(message: ReceivedMessage) -> None:
        await message.dead_letter()

    async with PushConsumer(group, place.mq.namesrv_addr, handler=refuse) as consumer:
        await consumer.subscribe("T")

        async def all_dead() -> bool:
            try:
                return len(await place.messages(f"%DLQ%{group}")) == count
            except TopicRouteError:
                return False

        await until_async(all_dead)


async def test_dead_letters_are_shown_and_sent_once(place: Place):
    await dead_letters(place, 6)
    record = ("--record", str(place.folder / "record.jsonl"))
    shown = await place.json("resendDlq", "CG", *record)
    assert (shown["dryRun"], [each["topic"] for each in shown["messages"]]) == (True, ["T"] * 6)
    text = await place.run("resendDlq", "CG", *record)
    assert "6 messages would be sent; --yes sends them" in text.out
    assert not (place.folder / "record.jsonl").exists()
    got: list[ReceivedMessage] = []

    async def take(message: ReceivedMessage) -> None:
        got.append(message)

    one = await place.json("resendDlq", "CG", *record, "--key", "k3", "--yes")
    assert (one["sent"], one["leftOut"]) == (1, {})
    rest = await place.json("resendDlq", "CG", *record, "--yes", "--rate", "0")
    assert (rest["sent"], rest["leftOut"]) == (5, {"sent before": 1})
    assert (await place.json("resendDlq", "CG", *record, "--yes"))["sent"] == 0
    async with PushConsumer("CG", place.mq.namesrv_addr, handler=take) as consumer:
        await consumer.subscribe("T")
        await until(lambda: len(got) == 6)
    assert sorted(message.body for message in got) == [b"body %d" % number for number in range(6)]
    assert {message.topic for message in got} == {"T"}
    assert all(message.properties["RESENT_FROM_DLQ"] for message in got)
    assert len(await place.messages("T")) == 6, "no other group gets them"


async def test_dead_letters_go_to_their_topic_or_a_client(place: Place):
    await dead_letters(place, 2)
    record = ("--record", str(place.folder / "record.jsonl"))
    assert (await place.json("resendDlq", "CG", *record, "--to", "topic", "--limit", "1", "--yes"))["sent"] == 1
    assert len(await place.messages("T")) == 3
    got: list[bytes] = []

    async def take(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with PushConsumer("CG", place.mq.namesrv_addr, handler=take) as consumer:
        await consumer.subscribe("T")
        await until(lambda: len(got) == 1)
        async with AdminClient(place.mq.namesrv_addr) as admin:
            client = (await admin.examine_consumer_connection_info("CG")).connection_set[0].client_id
        done = await place.json("resendDlq", "CG", *record, "--to", "client", "-d", client, "--yes")
        assert (done["sent"], len(got)) == (1, 2)


async def test_copies_that_are_held_are_recalled(place: Place):
    await dead_letters(place, 3)
    record = ("--record", str(place.folder / "record.jsonl"))
    words = ("resendDlq", "CG", *record, "--to", "topic")
    assert (await place.json(*words, "--undo-for", "600", "--yes"))["sent"] == 3
    undone = await place.json("resendDlq", "CG", *record, "--undo")
    assert (undone["recalled"], undone["delivered"]) == (3, 0)
    assert (await place.json(*words, "--yes"))["sent"] == 3
    late = await place.json("resendDlq", "CG", *record, "--undo")
    assert (late["recalled"], late["delivered"]) == (0, 3)
    assert len(await place.messages("T")) == 6


async def test_letters_of_a_killed_run_are_not_sent_again_unasked(place: Place):
    await dead_letters(place, 2)
    first = (await place.messages("%DLQ%CG"))[0]
    line = RecordLine("sending", first.offset_msg_id, 1, first.uniq_key or "", first.store_timestamp)
    record = place.folder / "record.jsonl"
    record.write_bytes(msgspec.json.encode(line) + b'\n{"state": "se')
    words = ("resendDlq", "CG", "--record", str(record), "--yes")
    done = await place.json(*words)
    assert done["sent"] == 1
    assert list(done["leftOut"].values()) == [1]
    undo = await place.run(*words[:-1], "--undo", "--dry-run")
    assert (undo.code, "outcome unknown; perhaps a copy was sent" in undo.err) == (1, True)
    assert (await place.json(*words, "--again"))["sent"] == 1


async def test_wrong_uses_of_resend_dlq_are_explained(place: Place):
    other = place.folder / "other.txt"
    other.write_text("no record\n")
    for words, reason in (
        (("CG",), "group CG has no dead letters"),
        (("C G",), "illegal characters"),
        (("CG", "--to", "client"), "--to client and -d (client id) need each other"),
        (("CG", "--undo", "--undo-for", "5", "--to", "topic"), "give either --undo-for"),
        (("CG", "--undo-for", "5"), "--undo-for needs --to topic"),
        (("CG", "--yes", "--dry-run"), "give either --yes"),
        (("CG", "--undo", "--record", str(place.folder / "none")), "--undo: there is no record"),
        (("CG", "--record", str(other)), "is no record of resendDlq"),
    ):
        ran = await place.run("resendDlq", *words)
        assert ran.code in {1, 2}
        assert reason in ran.err.replace("│ ", ""), ran


# -- servers that do not answer


@pytest.mark.parametrize("words", [("tail", "T"), ("export", "T", "--to", "-"), ("resendDlq", "CG")])
async def test_frozen_servers_are_named(place: Place, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "_TIMEOUT_S", 0.5)
    address = place.mq.namesrv_addr
    place.mq.freeze()
    try:
        ran = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-n", address])
    finally:
        place.mq.thaw()
    assert ran.exit_code == 1
    assert address in ran.stderr
    assert ran.stdout == ""


@pytest.mark.long
async def test_an_import_that_is_rejected_says_how_to_resume(place: Place):
    await place.fill(4)
    file = place.folder / "t.jsonl"
    await place.run("export", "T", "--to", str(file))
    ran = await place.run("import", str(file), "--to-topic", "T=a b")
    assert (ran.code, "4 messages were left out" in ran.err, "illegal characters" in ran.err) == (1, True, True)
    ran = await place.run("import", str(file), "--to-topic", "T=Copy", "--max-size", "3")
    assert (ran.code, "4 messages were left out: body over 3 bytes; raise --max-size" in ran.err) == (1, True)
    async with AdminClient(place.mq.namesrv_addr) as admin:
        await admin.create_and_update_topic_config(place.mq.broker_addr, TopicConfig("Closed", 2, 2, 4))
    ran = await place.run("import", str(file), "--to-topic", "T=Closed")
    assert ran.code == 1
    assert "0 messages are sent; continue by --resume" in ran.err
    assert (place.folder / "t.jsonl.import").exists()
