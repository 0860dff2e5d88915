"""The commands of the jobs, and what they read of stores: what is selected, what is damaged, what is printed."""

import itertools
import json
import re
import shutil
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rocketbroker.analytics import count_messages
from rocketbroker.analytics.columns.decode_report import NotRead
from rocketbroker.analytics.columns.selection import EVERYTHING, Selection
from rocketbroker.analytics.files.store_names import store_roots
from rocketbroker.analytics.jobs.scope import Scope
from rocketbroker.analytics.jobs.search import SHOWN, UNREADABLE_BODY, Pattern, search
from rocketbroker.analytics.spark.spark_progress import described
from rocketbroker.app.mqanalytics.cli import app
from rocketbroker.codec.message.compression import compress
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from tests.support import golden_store
from tests.support.commit_log_writer import CommitLogWriter, overwrite
from tests.support.job_frames import found, made_store, rows_of
from tests.support.pseudo_terminal import pseudo_terminal

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

START = 1_795_255_162_876


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_store(tmp_path_factory.mktemp("made"))


def scope(spark: SparkSession, store: Path, selection: Selection = EVERYTHING) -> Scope:
    return Scope(spark, tuple(store_roots(f"a={store}")), selection)


def test_a_selection_leaves_out_other_topics_and_times(spark: SparkSession, made: Path) -> None:
    since, until = START + 600_000, START + 1_200_000
    chosen = Selection(since_ms=since, until_ms=until, topics=frozenset({"T1"}))
    rows = found(scope(spark, made, chosen).messages(["physical_offset"]))
    assert sorted(each["physical_offset"] for each in rows) == [
        each["physical_offset"]
        for each in rows_of(made)
        if each["topic"] == "T1" and since <= each["store_timestamp"] < until
    ]


def job_descriptions(spark: SparkSession) -> list[str]:
    """Descriptions of all jobs, as Spark's web page shows them."""
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs"
    with urllib.request.urlopen(address) as answer:
        jobs = json.load(answer)
    return [each.get("description", "") for each in sorted(jobs, key=lambda each: int(each["jobId"]))]


def test_spark_shows_what_its_jobs_are_for(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    before = len(job_descriptions(spark))
    with described(spark, "of a program"):
        for job, *options in (
            ("traffic",),
            ("export", "--to", str(tmp_path / "export")),
            ("search", "--text", "1"),
            ("compare", str(shutil.copytree(made, tmp_path / "copy"))),
            ("lag",),
            ("audit", "--engine", "spark"),
        ):
            printed = CliRunner().invoke(app, [job, str(made), *options])
            assert printed.exit_code == 0, printed.output
        count_messages(made, spark)
        spark.range(1).collect()
    spark.range(1).collect()
    shown = job_descriptions(spark)[before:]
    unread = "Look for unreadable ranges of the log"
    assert [text for text, _ in itertools.groupby(shown)] == [
        "Count messages and bytes of each topic by time",
        unread,
        "Export messages as parquet",
        unread,
        "Searching",
        unread,
        "Comparing",
        unread,
        "Reading offsets",
        unread,
        "Audit: survey queues and index files",
        "Audit: check the log",
        "Audit: check queues and index files by the log",
        "Count messages by topic and queue",
        "of a program",
        "",
    ]
    plan = spark.read.format("rocketmq_store").load(str(made))._jdf.queryExecution().toString()
    assert "BatchScan rocketmq_store" in plan


def test_a_job_shows_a_bar_on_a_terminal(
    spark: SparkSession, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with pseudo_terminal() as (descriptor, shown), open(descriptor, "w", closefd=False) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        app(["traffic", str(made)], standalone_mode=False)
        monkeypatch.undo()
    assert "Count messages and bytes of each topic by time" in shown.decode()
    assert "━" in shown.decode(), "a progress bar"
    assert "everything was read" in capsys.readouterr().out
    assert spark.range(1).count() == 1, "the session goes on"


def test_unreadable_messages_are_counted(spark: SparkSession, recorded: Path, made: Path, tmp_path: Path) -> None:
    assert scope(spark, recorded).not_read() == NotRead(0, 0)
    broken = shutil.copytree(recorded, tmp_path / "broken")
    message = golden_store.manifest("clean")["messages"][20]
    overwrite(broken / "commitlog" / ("0" * 20), message["phyOffset"] + 4, b"????")
    assert scope(spark, broken).not_read() == NotRead(1, message["size"])
    other_topic = Selection(topics=frozenset({"none of these"}))
    assert scope(spark, broken, other_topic).not_read() == NotRead(1, message["size"])


def test_compressed_bodies_are_unpacked_and_corrupt_ones_reported(spark: SparkSession, tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path)
    flag = COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE
    writer.append(compress(b"x" * 500 + b" needle \x00\xff " + b"y" * 500), sys_flag=flag)
    writer.append(b"needle, but no zlib stream", sys_flag=flag)
    messages = scope(spark, tmp_path).messages([*SHOWN, "decompressed_body", "properties"])
    packed, broken = sorted(found(search(messages, Pattern("needle"))), key=lambda each: each["physical_offset"])
    assert packed["found_in"] == "body"
    assert packed["excerpt"].startswith("…" + "x" * 29 + " needle ·\ufffd yyyy")
    assert (broken["found_in"], broken["excerpt"]) == (UNREADABLE_BODY, None)


# -- the commands


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_traffic_is_printed_as_json(spark: SparkSession, made: Path) -> None:
    printed = run("traffic", f"a={made}", "--json", "--interval", 600, "--topic", "T1", "--since", START)
    assert printed.exit_code == 0, printed.stderr
    told = json.loads(printed.stdout)
    assert told | {"rows": []} == {"job": "traffic", "rows": [], "more": False, "notRead": {"ranges": 0, "bytes": 0}}
    assert sum(each["messages"] for each in told["rows"]) == sum(r["topic"] == "T1" for r in rows_of(made))
    assert told["rows"][0]["fromTime"] == START // 600_000 * 600_000
    assert [each["fromTime"] for each in told["rows"]] == sorted(each["fromTime"] for each in told["rows"])


def test_rows_are_printed_as_a_table_with_the_unread_parts(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(recorded, tmp_path / "broken")
    message = golden_store.manifest("clean")["messages"][20]
    overwrite(broken / "commitlog" / ("0" * 20), message["phyOffset"] + 4, b"????")
    printed = run("sizes", broken, "--limit", 2)
    assert printed.exit_code == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert " ".join(lines[0].split()) == "Broker Topic Messages Bytes Least Mean P50 P90 P99 P99.9 Greatest"
    assert len(lines) == 4
    assert lines[-1] == f"2 rows; and more (--limit); 1 range, {message['size']:,} bytes not read"
    assert run("sizes", broken, "--skip-damage").stdout.splitlines()[-1].endswith("not checked for damage")


def of_recorded(job: str, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Messages of each row that a job tells of the recorded store."""
    sent = [each for each in rows if not each["topic"].startswith(("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_"))]
    back = [each for each in rows if each["topic"].startswith("%")]
    group = {each["topic"]: re.sub("(?<=P)_StRetry$", "", each["topic"].rpartition("%")[2]) for each in back}
    if job == "hot-keys":
        return Counter((each["topic"], key) for each in rows for key in set((each["keys"] or "").split()))
    if job == "skew":
        return Counter((each["topic"], each["queue_id"]) for each in rows)
    if job == "delays":
        return Counter((each["topic"],) for each in sent)
    if job == "retry-delays":
        return Counter((group[each["topic"]], each["reconsume_times"]) for each in back if "RETRY" in each["topic"][:7])
    return Counter((group[each["topic"]], "StRetry") for each in back)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ("hot-keys", ("topic", "key")),
        ("skew", ("topic", "queueId")),
        ("delays", ("topic",)),
        ("retry-delays", ("groupName", "reconsumeTimes")),
        ("retries", ("groupName", "originTopic")),
    ],
)
def test_each_job_counts_the_messages_of_a_recorded_store(
    spark: SparkSession, recorded: Path, job: str, names: tuple[str, ...]
) -> None:
    top = ("--top", 1000) if job == "hot-keys" else ()
    printed = run(job, recorded, "--json", "--limit", 0, *top)
    assert printed.exit_code == 0, printed.stderr
    told = Counter[tuple[Any, ...]]()
    for each in json.loads(printed.stdout)["rows"]:
        told[tuple(each[name] for name in names)] += each["messages"]
    assert +told == of_recorded(job, rows_of(recorded))


def test_stores_are_compared_by_the_bytes_of_properties(spark: SparkSession, tmp_path: Path) -> None:
    first = [b"K\x01v\xff\x02", b"A\x011\x02B\x012\x02", b"A\x011\x02B\x01\x02", b"A\x011\x02"]
    second = [b"K\x01v\xfe\x02", b"B\x012\x02A\x011\x02", b"A\x011\x02C\x01\x02", b"A\x011\x02"]
    for name, stored in (("first", first), ("second", second)):
        writer = CommitLogWriter(tmp_path / name)
        for number, properties in enumerate(stored):
            writer.append(properties=properties, queue_offset=number)
    printed = run("compare", tmp_path / "first", tmp_path / "second", "--json")
    assert printed.exit_code == 3, printed.stderr
    rows = json.loads(printed.stdout)["rows"]
    assert [(each["queueOffset"], each["columns"]) for each in rows] == [(n, ["properties"]) for n in range(3)]
    same = run("compare", tmp_path / "first", tmp_path / "second", "--ignore", "properties")
    assert same.exit_code == 0, same.stderr


def test_search_prints_its_matches(spark: SparkSession, made: Path) -> None:
    printed = run("search", made, "--regex", "body 3[0-9] ", "--in", "body", "--topic", "T0")
    assert printed.exit_code == 0, printed.stderr
    expected = [
        r for r in rows_of(made) if r["topic"] == "T0" and r["body"][:6] == b"body 3" and r["body"][7:8] == b" "
    ]
    assert printed.stdout.splitlines()[-1] == f"{len(expected)} rows; everything was read"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (("traffic", "{made}/none"), 1, "/none does not exist; name a store directory, which contains commitlog/"),
        (
            ("traffic", "{made}", "--since", "2026-11-22T05:00:00Z", "--until", "2026-11-22T04:00:00Z"),
            2,
            "the range is empty",
        ),
        (
            ("traffic", "{made}", "--since", "5", "--until", "-99999999999999999"),
            2,
            "--since 1970-01-01T00:00:00.005Z (5 ms since 1970) is not before --until -99999999999999999 (ms since",
        ),
        (("traffic", "{made}", "--since", "yesterday"), 2, "'yesterday' is not a time"),
        (("traffic", "{made}", "--since", "22.11.2026"), 2, "is not a time"),
        (("traffic", "{made}", "--interval", "0"), 2, "greater than or equal to 1"),
        (("search", "{made}"), 2, "either --text or --regex"),
        (("search", "{made}", "--regex", "("), 2, "is not a valid regular expression"),
        (("search", "{made}", "--text", ""), 2, "at least one character"),
        (("search", "{made}", "--text", "\udcff"), 2, "is not valid UTF-8"),
        (("traffic", "a={made}", "b={made}"), 2, "is named twice"),
        (("compare", "{made}", "{made}/commitlog"), 2, "are one store"),
        (("compare", "{made}", "{made}", "--by", "key"), 2, "'key' is not one of 'physical', 'queue'"),
        (("lag", "{made}", "--by", "day"), 2, "'day' is not one of 'queue', 'topic', 'group'"),
        (("traffic", "{made}", "--topic", "\udcff"), 2, "is not valid UTF-8"),
        (("traffic",), 2, "Missing argument"),
    ],
)
def test_a_wrong_command_is_reported_in_one_line(
    made: Path, arguments: tuple[str, ...], exit_code: int, reason: str
) -> None:
    printed = run(*(each.format(made=made) for each in arguments))
    assert (printed.exit_code, printed.stdout) == (exit_code, "")
    assert reason in " ".join(printed.stderr.split())
    assert "Traceback" not in printed.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (("sizes", "{made}", "--percentiles", "101"), 2, "percentiles: 101.0; give different numbers from 0 to 100"),
        (("hot-keys", "{made}", "--top", "9" * 30), 1, "NumberFormatException"),
        (("traffic", "{made}", "--interval", "9" * 30), 2, "is out of range; give 1 to 31,622,400 seconds"),
        (("export", "{made}", "--to", "/proc/none/here"), 1, "cannot use /proc/none/here: "),
    ],
)
def test_a_spark_failure_is_reported_in_one_line(
    spark: SparkSession, made: Path, arguments: tuple[str, ...], exit_code: int, reason: str
) -> None:
    printed = run(*(each.format(made=made) for each in arguments))
    assert (printed.exit_code, printed.stdout) == (exit_code, "")
    assert printed.stderr.count("mqanalytics: ") == 1
    assert reason in printed.stderr
    assert "\tat " not in printed.stderr


def test_files_named_like_snapshots_are_ignored(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"topic": ["T1"], "lag": [1]}), tmp_path / "consumerOffset-1.parquet")
    printed = run("lag", made, "--snapshots", tmp_path)
    assert (printed.exit_code, printed.stdout) == (2, "")
    assert "they lack time_ms, broker, group_name, queue_id, consumer_offset, max_offset" in printed.stderr


# -- export and replay


def invoke(*arguments: object) -> tuple[int, str, str]:
    printed = CliRunner().invoke(app, [str(each) for each in arguments])
    return printed.exit_code, printed.stdout, printed.stderr


def test_the_commands_export_and_preview_a_replay(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    exit_code, stdout, stderr = invoke("export", f"a={made}", "--to", target, "--topic", "T1")
    expected = [each for each in rows_of(made) if each["topic"] == "T1"]
    assert exit_code == 0, stderr
    assert stdout == f"{target}: {len(expected)} messages; everything was read\n"
    exit_code, stdout, _ = invoke("replay", target, "--json", "--to-topic", "T1=Other")
    assert exit_code == 0
    empty = sum(not each["body"] for each in expected)
    skipped = {"the message body is empty; give at least one byte": empty} if empty else {}
    assert json.loads(stdout) == {
        "job": "replay",
        "dryRun": True,
        "sent": {"Other": len(expected) - empty},
        "skipped": skipped,
        "failure": None,
        "resumeFrom": None,
    }
    assert invoke("replay", target)[1].splitlines()[-1].endswith("would be sent; --send sends them")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("export", "{made}", "--to", "{made}"), "exists already"),
        (("export", "{made}", "--to", "x", "--format", "csv"), "--format 'csv' is unknown"),
        (("replay", "{made}", "--send"), "no name server; use -n"),
        (("replay", "{made}", "--to-topic", "T"), "give OLD=NEW"),
    ],
)
def test_a_wrong_export_is_reported_in_one_line(
    spark: SparkSession, made: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    exit_code, stdout, stderr = invoke(*(each.format(made=made) for each in arguments))
    assert (exit_code, stdout) == (2, "")
    assert reason in stderr
    assert "Traceback" not in stderr
