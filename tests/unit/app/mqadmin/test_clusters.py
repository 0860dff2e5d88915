"""Columns that clusterList derives from a broker's runtime statistics."""

from rocketbroker.app.mqadmin.clusters import BrokerRow, base_table, more_table

NOW_MS = 1_795_257_000_000


def row_of(runtime: dict[str, str]) -> BrokerRow:
    return BrokerRow("DefaultCluster", "broker-a", 0, "127.0.0.1:10911", runtime)


def test_all_that_apaches_broker_tells_is_shown():
    runtime = {
        "putTps": "0.0999 0.1 0.1",
        "getTransferredTps": "0.7992 0.8 0.8",
        "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "ackThreadPoolQueueSize": "0",
        "ackThreadPoolQueueHeadWaitTimeMills": "0",
        "timerReadBehind": "1",
        "timerOffsetBehind": "0",
        "timerCongestNum": "20000",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.25",
        "pageCacheLockTimeMills": "0",
        "earliestMessageTimeStamp": str(NOW_MS - 2_052_000),
        "commitLogDiskRatio": "0.26",
        "brokerVersionDesc": "V5_5_0",
        "brokerActive": "true",
    }
    (cells,) = base_table([row_of(runtime)], NOW_MS).rows
    assert cells[4:] == [
        "V5_5_0",
        "0.10(0,0ms)",
        "0.80(0,0ms|0,0ms)",
        "1-0(2.0w, 0.0, 0.2)",
        "0",
        "0.57",
        "0.2600",
        "true",
    ]


def test_what_is_not_told_or_no_number_is_a_dash():
    without_messages = {"earliestMessageTimeStamp": "-1"}
    wrong = {"putTps": "", "earliestMessageTimeStamp": "soon", "commitLogDiskRatio": "x"}
    for runtime in ({}, without_messages, wrong):
        (cells,) = base_table([row_of(runtime)], NOW_MS).rows
        assert cells[4:] == ["-", "-(-,-ms)", "-(-,-ms|-,-ms)", "-", "-", "-", "-", "-"]
        (cells,) = more_table([row_of(runtime)]).rows
        assert cells[2:] == ["-", "-", "-", "-"]
