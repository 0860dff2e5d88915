import json
import re

from rocketbroker.analytics.columns.selection import Selection
from tests.support.table_rows import named, table_rows


def test_each_recorded_topic_is_a_row(recorded):
    text = (recorded / "config" / "topics.json").read_text()
    table = json.loads(text)["topicConfigTable"]
    rows = table_rows(named(recorded), "topics")
    assert [row["topic"] for row in rows] == sorted(table)
    for row in rows:
        topic = table[row["topic"]]
        assert row == {
            "broker": "broker-a",
            "topic": topic["topicName"],
            "read_queue_nums": topic["readQueueNums"],
            "write_queue_nums": topic["writeQueueNums"],
            "perm": topic["perm"],
            "topic_filter_type": topic["topicFilterType"],
            "topic_sys_flag": topic["topicSysFlag"],
            "order": topic["order"],
            "attributes": topic["attributes"],
        }
    assert [row["attributes"] for row in rows if row["topic"] == "StBatchCQ"] == [{"queue.type": "BatchCQ"}]
    assert len(re.findall('"topicName"', text)) == len(rows)


def test_they_are_chosen_by_name(recorded):
    rows = table_rows(named(recorded), "topics", Selection(topics={"StFill", "none"}))
    assert [row["topic"] for row in rows] == ["StFill"]
