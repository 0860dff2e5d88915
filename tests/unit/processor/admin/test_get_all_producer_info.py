from rocketbroker.processor.admin.get_all_producer_info import GetAllProducerInfoProcessor
from tests.support.processor_calls import call_async, recorded


async def test_recorded_answers(parts, producer, encoder):
    processor = GetAllProducerInfoProcessor(parts.producers, parts.clock, encoder)
    assert (await call_async(processor.process)).body == {"data": {}}
    _, theirs = max(recorded(328), key=lambda each: len(str(each[1].body)))
    clients = {info["clientId"]: info for group in theirs.body["data"].values() for info in group}
    for info in sorted(clients.values(), key=lambda info: info["lastUpdateTimestamp"]):
        parts.clock.advance((info["lastUpdateTimestamp"] - parts.clock.time_ms()) / 1000)
        for group, members in theirs.body["data"].items():
            if any(member["clientId"] == info["clientId"] for member in members):
                producer(group, info["clientId"], port=int(info["remoteIP"].rpartition(":")[2]))
    parts.clock.advance(12.5)

    ours = await call_async(processor.process)

    for answer in (ours, theirs):
        for members in answer.body["data"].values():
            members.sort(key=lambda info: info["clientId"])
    assert ours == theirs
    assert len(clients) == 3
