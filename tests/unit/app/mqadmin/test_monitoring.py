"""mqadmin grafana and mqadmin alerts."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from rocketbroker.app.mqadmin.cli import app

MANUAL = (Path(__file__).parents[4] / "docs" / "operations" / "monitor.md").read_text()
METRIC = re.compile(r"\b(?:rocketmq|rocketbroker)_\w+")


def mqadmin(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_board_is_json_with_its_title():
    board = json.loads(mqadmin("grafana", "--title", "Orders", "--uid", "orders").stdout)

    assert (board["title"], board["uid"]) == ("Orders", "orders")


def test_options_set_the_thresholds():
    text = mqadmin(
        "alerts",
        "--lagMessages",
        "7",
        "--lagSeconds",
        "8",
        "--replicaSeconds",
        "9",
        "--diskRatio",
        "0.5",
        "--for",
        "2m",
        "--slaves",
        "2",
        "--brokers",
        "4",
        "--certificateDays",
        "14",
    ).stdout

    for each in (
        "(rocketbroker_replication_slaves) < 2\n",
        "(rocketbroker_namesrv_brokers) < 4\n",
        "- time() < 14 * 86400\n",
        "> 7\n",
        "/ 1000 > 8\n",
        "lag_seconds > 9\n",
        "used_ratio > 0.5\n",
        "for: 2m\n",
    ):
        assert each in text
    assert "@" not in text


def expressions() -> dict[str, str]:
    rules = yaml.safe_load(mqadmin("alerts").stdout)["groups"][0]["rules"]
    return {rule["alert"]: rule["expr"] for rule in rules}


def test_the_lag_of_a_slave_is_not_added_to_that_of_its_master():
    assert "(max by (cluster, node_id, consumer_group, topic, is_retry)" in expressions()["RocketMQConsumerLag"]


def test_rules_hold_while_a_fault_lasts():
    found = expressions()

    assert 'condition!="disk"' in found["RocketMQNotReady"]
    assert "rocketbroker_replication_slaves[7d:30m]" in found["RocketMQSlaveLost"]
    assert "and on (instance) (up == 1)" in found["RocketMQGroupGone"]


def test_dead_letters_count_by_series_and_after_a_restart():
    found = expressions()["RocketMQDeadLetters"]

    assert "increase(rocketmq_send_to_dlq_messages_total[10m]) > 0" in found
    assert found.endswith("and on (instance) (up offset 10m == 1))")


@pytest.mark.parametrize("shortest", ["1h", "60m", "3600s"])
def test_the_shortest_time_to_remember(shortest: str):
    assert f"rocketbroker_namesrv_brokers[{shortest}:30m]" in mqadmin("alerts", "--remember", shortest).stdout


def test_a_job_is_quoted():
    rules = yaml.safe_load(mqadmin("alerts", "--job", 'a"b\\w: # c').stdout)["groups"][0]["rules"]
    assert rules[0]["expr"] == r'up{job=~"a\"b\\w: # c"} == 0'


@pytest.mark.parametrize("command", ["grafana", "alerts"])
def test_the_manual_explains_each_metric(command: str):
    names = {re.sub(r"_(?:bucket|count|sum)$", "", each) for each in METRIC.findall(mqadmin(command).stdout)}

    assert len(names) > 10
    assert {each for each in names if f"`{each}`" not in MANUAL} == set()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["alerts", "--for", "soon"], "--for 'soon' is no duration; write a number and s, m, h, d or w, such as 5m"),
        (["alerts", "--job", "a\nb"], "--job 'a\\nb' has a line end"),
        (["alerts", "--job", "a("], "--job 'a(' is no regular expression"),
        (["alerts", "--remember", "\u00b2d"], "--remember '\u00b2d' is no duration"),
        (
            ["alerts", "--remember", "0d"],
            "--remember 0d is too short: the rules look back 1h at least; write 1h",
        ),
        (["alerts", "--remember", "59m"], "--remember 59m is too short"),
        (["alerts", "--remember", "3599s"], "--remember 3599s is too short"),
        (["alerts", "--for", "m"], "is no duration"),
        (["alerts", "--diskRatio", "80"], "'--diskRatio': Input should be less than or equal to 1"),
        (["alerts", "--lagMessages", "0"], "'--lagMessages': Input should be greater than or equal to 1"),
        (["grafana", "--title", " "], "--title is empty"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], reason: str):
    result = mqadmin(*arguments)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
