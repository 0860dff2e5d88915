"""Which folders of a store are queues."""

from pathlib import Path

from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_root import store_roots
from rocketbroker.analytics.queues.queue_folders import queue_numbers, queue_topics
from rocketbroker.codec.storefile.queue_files import CONSUME_QUEUE


def test_queues_are_called_as_a_broker_writes_their_numbers(tmp_path: Path) -> None:
    names = (
        "10",
        "0",
        "7",
        "07",
        "2147483647",
        "2147483648",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "x",
        "-1",
        "1 ",
        "9" * 200,
    )
    for name in names:
        (tmp_path / CONSUME_QUEUE / "T" / name).mkdir(parents=True)
    (tmp_path / CONSUME_QUEUE / "T" / "5").touch()
    folder = open_folder(store_roots(tmp_path)[0])
    assert queue_numbers(folder, CONSUME_QUEUE, "T") == [0, 7, 10, 2147483647]
    assert queue_numbers(folder, CONSUME_QUEUE, "None") == []


def test_what_is_left_of_a_deleted_topic_is_none(tmp_path: Path) -> None:
    for name in ("T", "T.deleted-0", "T.deleted-12", "T.deleted-x", "%DLQ%g.deleted-3"):
        (tmp_path / CONSUME_QUEUE / name).mkdir(parents=True)
    (tmp_path / CONSUME_QUEUE / "file").touch()
    folder = open_folder(store_roots(tmp_path)[0])
    assert queue_topics(folder, CONSUME_QUEUE) == ["T", "T.deleted-x"]
