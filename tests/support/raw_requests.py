"""Raw requests, valid or not, and the traces they leave."""

from pathlib import Path
from typing import Any

from tests.support.raw_client import RawAnswer

SUCCESS = 0


def refused(answer: RawAnswer, *words: str) -> None:
    """It is one line and names all the words."""
    assert answer.code != SUCCESS, answer
    for word in words:
        assert word in answer.remark, answer.remark
    assert len(answer.remark.splitlines()) == 1, answer.remark
    assert "Traceback" not in answer.remark


# Files that the broker's own threads write at intervals.
OWN_FILES = {
    "checkpoint", "config", "consumerFilter.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json",
    "timerProgress.json", "topics.json",
}  # fmt: skip


def everything(store: Path) -> set[str]:
    """Return the names of all files and folders near the store, those aside that come and go by themselves."""
    return {
        str(path.relative_to(store.parent))
        for path in store.parent.rglob("*")
        if path.suffix not in (".tmp", ".bak")
        and path.name not in OWN_FILES
        and not {"commitlog", "index"} & set(path.parts)
    }


def send_fields(topic: str, **others: Any) -> dict[str, str]:
    fields = {
        "a": "PG_Bad", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x01" + "0" * 32 + "\x02", "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip
    return {**fields, **others}


def pull_fields(topic: str, offset: int = 0, **others: Any) -> dict[str, str]:
    fields = {
        "consumerGroup": "CG_Bad", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return {**fields, **others}


def consumer_data(group: str) -> dict[str, Any]:
    return {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{"topic": "Bystander", "subString": "*", "subVersion": 1, "expressionType": "TAG"}],
    }  # fmt: skip


def topic_fields(topic: str) -> dict[str, str]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


def send_v1_fields(topic: str) -> dict[str, str]:
    return {
        "producerGroup": "PG_Bad", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
