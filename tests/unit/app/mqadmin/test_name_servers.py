from rocketbroker.codec.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    GetKVConfigResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script, header_of


def counting(header: type, count: int) -> Script:
    return lambda _fields, _body: response(0, None, header_of(header(count)))


def value(fields: dict[str, str], _body: bytes) -> Command:
    if fields["key"] != "key":
        return response(ResponseCode.QUERY_NOT_FOUND, "No config item")
    return response(0, None, header_of(GetKVConfigResponseHeader("a value")))


SCRIPTS: dict[int, Script] = {
    RequestCode.GET_KV_CONFIG: value,
    RequestCode.PUT_KV_CONFIG: lambda _fields, _body: response(),
    RequestCode.DELETE_KV_CONFIG: lambda _fields, _body: response(),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: counting(WipeWritePermOfBrokerResponseHeader, 7),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: counting(AddWritePermOfBrokerResponseHeader, 5),
}


async def test_a_value_is_set_and_deleted_at_all_name_servers():
    async with admin_stage({"broker-a": {}}, [SCRIPTS, SCRIPTS]) as stage:
        put = await stage.call("updateKvConfig", "-s", "space", "-k", "key", "-v", "a value")
        deleted = await stage.json("deleteKvConfig", "-s", "space", "-k", "key")
        missing = await stage.call("deleteKvConfig", "-s", "space", "-k", "other")

    assert put == (0, "create or update kv config to namespace success.\n", "")
    assert deleted == {"namespace": "space", "key": "key", "before": "a value"}
    assert missing == (0, "delete kv config from namespace success. There was none.\n", "")
    for server in stage.names:
        (asked,) = server.of(RequestCode.PUT_KV_CONFIG)
        assert asked.fields == {"namespace": "space", "key": "key", "value": "a value"}
        asked, _ = server.of(RequestCode.DELETE_KV_CONFIG)
        assert asked.fields == {"namespace": "space", "key": "key"}


async def test_the_number_of_topics_is_shown_for_each_name_server():
    async with admin_stage({"broker-a": {}}, [SCRIPTS, SCRIPTS]) as stage:
        wiped = await stage.call("wipeWritePerm", "-b", "broker-a")
        added = await stage.json("addWritePerm", "-b", "broker-a")

    first, second = (each.address for each in stage.names)
    assert wiped.out.splitlines() == [
        f"wipe write perm of broker[broker-a] in name server[{address}] OK, 7" for address in (first, second)
    ]
    assert added == {"brokerName": "broker-a", "topicsByNameServer": {first: 5, second: 5}}


async def test_an_unknown_broker_is_refused_before_anything_is_asked():
    async with admin_stage({"broker-a": {}, "broker-b": {}}, [SCRIPTS]) as stage:
        done = await stage.call("wipeWritePerm", "-b", "broker-c")

    assert done == (1, "", "mqadmin: no registered broker is named 'broker-c'; there are broker-a, broker-b\n")
    assert stage.names[0].of(RequestCode.WIPE_WRITE_PERM_OF_BROKER) == []


async def test_a_name_server_that_is_gone_leaves_word_of_the_one_that_was_changed():
    async with admin_stage({"broker-a": {}}, [SCRIPTS, SCRIPTS]) as stage:
        await stage.names[1].stop()
        done = await stage.call("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")

    assert done.code == 1
    assert f"{stage.names[0].address} had agreed already" in done.err
