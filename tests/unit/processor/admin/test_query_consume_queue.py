import json
from typing import cast

import pytest

from rocketbroker.codec.remoting.bodies.client import SubscriptionData
from rocketbroker.codec.remoting.headers.message import QueryConsumeQueueRequestHeader
from rocketbroker.codec.remoting.remoting_command import from_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.processor.admin.query_consume_queue import MAX_COUNT, QueryConsumeQueueProcessor
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.golden_store import manifest
from tests.support.processor_calls import call, recorded, refusal


@pytest.fixture
def processor(parts, golden_store):
    return QueryConsumeQueueProcessor(parts.consumers, parts.consumer_filters, golden_store.queues)


def header(index=0, count=10, topic="StFill", queue_id=0, group=None):
    return QueryConsumeQueueRequestHeader(topic, queue_id, index, count, group)


@pytest.mark.parametrize(("index", "count"), [(0, 5), (55, 10), (0, 200), (125, 10), (130, 10), (7, 0)])
def test_entries_of_a_recorded_queue_across_its_files(processor, index, count):
    messages = [m for m in manifest("clean")["messages"] if (m["topic"], m["queueId"]) == ("StFill", 0)]
    answer = call(processor.process, header(index, count))
    assert (answer.body["minQueueIndex"], answer.body["maxQueueIndex"]) == (0, 130)
    assert answer.body["queueData"] == [
        {"eval": False, "physicOffset": m["phyOffset"], "physicSize": m["size"], "tagsCode": m["cqTagCode"]}
        for m in messages[index : index + count]
    ]


def test_the_groups_subscription_is_answered(consumer, processor):
    offline = call(processor.process, header(group="CG_Live")).body
    assert offline["filterData"] == "CG_Live@StFill is not online!"
    consumer("CG_Live", "client", "StFill")
    online = call(processor.process, header(group="CG_Live")).body
    assert online["subscriptionData"]["subString"] == "*"
    assert online["filterData"] == "null"
    assert online["queueData"] == offline["queueData"]


def test_an_empty_group_is_not_online(processor):
    answer = call(processor.process, header(group=""))
    assert answer.code == 0
    assert answer.body["filterData"] == "@StFill is not online!"
    assert answer.body["queueData"] == call(processor.process, header()).body["queueData"]


def test_a_request_without_a_group_is_answered(processor):
    fields = {"topic": "StFill", "queueId": "0", "index": "0", "count": "3"}
    answer = call(processor.process, from_ext_fields(fields, QueryConsumeQueueRequestHeader))
    assert (answer.code, len(answer.body["queueData"])) == (0, 3)
    assert answer.body.keys() & {"filterData", "subscriptionData"} == set()


def test_the_filter_that_the_group_has(parts, consumer, processor):
    consumer("CG_Live", "client", "StFill")
    apply_updates([parts.config], {"enablePropertyFilter": "true"})
    parts.consumer_filters.register("CG_Live", [SubscriptionData("StFill", "a > 1", 7, expression_type="SQL92")])
    told = json.loads(call(processor.process, header(group="CG_Live")).body["filterData"])
    assert (told["expression"], told["clientVersion"], told["dead"]) == ("a > 1", 7, False)
    assert told["bloomFilterData"]["bitNum"] == 112


class Queue:
    """A queue that holds what a recorded answer tells of."""

    holds_batches = False

    def __init__(self, body):
        self.min_offset, self.max_offset = body["minQueueIndex"], body["maxQueueIndex"]
        self._data = [(row["physicOffset"], row["physicSize"], row["tagsCode"]) for row in body["queueData"]]

    def entries(self, queue_offset, limit):
        return iter(self._data[queue_offset : queue_offset + limit])


def test_recorded_requests(parts, consumer):
    seen = 0
    for command, theirs in recorded(321, QueryConsumeQueueRequestHeader):
        queues = {command.header.queue_id: Queue(theirs.body)}

        class Queues:
            find = staticmethod(lambda _topic, queue_id, queues=queues: queues.get(queue_id))

        if "subscriptionData" in theirs.body:
            consumer(command.header.consumer_group, "client", command.header.topic)
            theirs.body["subscriptionData"]["subVersion"] = 1795256109612
        ours = call(
            QueryConsumeQueueProcessor(
                parts.consumers, parts.consumer_filters, cast("ConsumeQueueStore", Queues())
            ).process,
            command.header,
        )
        assert (ours.code, ours.fields, ours.body) == (theirs.code, theirs.fields, theirs.body)
        seen += 1
    assert seen == 3


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (header(topic="../up"), ResponseCode.INVALID_PARAMETER, "'../up'"),
        (header(queue_id=-1), ResponseCode.INVALID_PARAMETER, "queueId -1"),
        (header(count=-1), ResponseCode.INVALID_PARAMETER, "count -1"),
        (header(count=MAX_COUNT + 1), ResponseCode.INVALID_PARAMETER, f"use 0 to {MAX_COUNT}"),
        (header(group="../up"), ResponseCode.INVALID_PARAMETER, "The specified group"),
        (header(queue_id=9), ResponseCode.SYSTEM_ERROR, "9@StFill is not exist!"),
        (header(index=131), ResponseCode.SYSTEM_ERROR, "Index 131 of 0@StFill is not exist! Use 0 to 130"),
        (header(index=-1), ResponseCode.SYSTEM_ERROR, "Index -1 of 0@StFill"),
    ],
)
def test_bad_requests_are_named(processor, wrong, code, named):
    found_code, remark = refusal(processor.process, wrong)
    assert found_code == code
    assert named in remark
