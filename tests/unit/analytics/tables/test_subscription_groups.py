import json

import pytest

from rocketbroker.analytics.columns.selection import Selection
from rocketbroker.common.errors import ConfigError
from tests.support.table_rows import named, table_rows


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


def test_each_recorded_group_is_a_row(clean):
    table = json.loads((clean / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    rows = table_rows(named(clean), "subscription_groups")
    assert [row["group_name"] for row in rows] == sorted(table)
    for row in rows:
        group = table[row["group_name"]]
        assert (row.pop("broker"), row.pop("retry_policy_type")) == ("broker-a", group["groupRetryPolicy"]["type"])
        assert row == {name: group[camel(name)] for name in row}


def test_they_are_chosen_by_broker_only(clean):
    assert table_rows(named(clean), "subscription_groups", Selection(brokers={"broker-b"})) == []
    with pytest.raises(ConfigError, match="subscription_groups cannot be selected by topic, only by broker"):
        table_rows(named(clean), "subscription_groups", Selection(topics={"T"}))
