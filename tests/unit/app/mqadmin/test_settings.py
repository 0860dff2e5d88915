import pytest

from rocketbroker.app.mqadmin.settings import check_name, settings_lines
from rocketbroker.client.core.errors import ClientError
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import admin_stage
from tests.support.scripted_server import Script


class Settings:
    """Settings of a server, which takes `maybe` for false, as Java's parser of booleans does."""

    def __init__(self, **held: str) -> None:
        self.held = held
        self.scripts: dict[int, Script] = {
            RequestCode.GET_BROKER_CONFIG: self.get,
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
        }

    def get(self, _fields: dict[str, str], _body: bytes) -> Command:
        return response(body="".join(f"{name}={value}\n" for name, value in self.held.items()).encode())

    def update(self, _fields: dict[str, str], body: bytes) -> Command:
        key, _, value = body.decode().strip().partition("=")
        if key == "listenPort":
            return response(ResponseCode.SYSTEM_ERROR, "listenPort cannot be changed at run time")
        self.held[key] = "false" if value == "maybe" else value
        return response()


def test_settings_are_listed_by_name_with_an_empty_line_after_them():
    assert settings_lines("== a ==", {"b": "2", "a": ""}) == ["== a ==", f"{'a':50}=  ", f"{'b':50}=  2", ""]


def test_a_value_stays_on_its_line():
    assert settings_lines("", {"a\nb": "1\n2"})[1].split("=  ") == [r"a\nb".ljust(50), r"1\n2"]


def test_a_name_that_is_spelt_alike_is_a_hint():
    check_name("traceOn", {"traceOn": "true"})
    with pytest.raises(ClientError, match=r"no setting 'traceon'; did you mean traceOn\?"):
        check_name("traceon", {"traceOn": "true", "brokerName": "a"})
    with pytest.raises(ClientError, match="no setting 'xyz'; getBrokerConfig and getNamesrvConfig list the settings"):
        check_name("xyz", {"traceOn": "true"})


async def test_a_change_shows_the_value_before_and_after_as_the_broker_tells_it():
    a, b = Settings(traceOn="true"), Settings(traceOn="false")
    async with admin_stage({"broker-a": a.scripts, "broker-b": b.scripts}) as stage:
        done = await stage.call("updateBrokerConfig", "-c", "DefaultCluster", "-k", "traceOn", "-v", "maybe")

        assert (done.code, done.out.splitlines()) == (
            0,
            [
                f"update broker config success, {stage.address('broker-a')}",
                "traceOn : true -> false",
                f"update broker config success, {stage.address('broker-b')}",
                "traceOn : false -> false",
            ],
        )
        assert await stage.json("updateBrokerConfig", "-b", stage.address(), "-k", "traceOn", "-v", "true") == {
            "key": "traceOn",
            "value": "true",
            "brokers": [{"addr": stage.address(), "before": "false", "after": "true", "error": None}],
        }


async def test_a_broker_that_refuses_or_lacks_the_setting_is_named_and_the_others_are_changed():
    a, b = Settings(traceOn="true", listenPort="1"), Settings(traceOff="true", listenPort="2")
    async with admin_stage({"broker-a": a.scripts, "broker-b": b.scripts}) as stage:
        lacking = await stage.call("updateBrokerConfig", "-c", "DefaultCluster", "-k", "traceOn", "-v", "false")
        refused = await stage.call("updateBrokerConfig", "-b", stage.address(), "-k", "listenPort", "-v", "3")
        asked = stage.brokers["broker-b"].of(RequestCode.UPDATE_BROKER_CONFIG)

    assert (lacking.code, a.held["traceOn"], asked) == (1, "false", [])
    assert lacking.err == (
        f"mqadmin: {stage.address('broker-b')}: there is no setting 'traceOn'; did you mean traceOff?\n"
    )
    assert (refused.code, refused.out) == (1, "")
    assert "listenPort cannot be changed at run time" in refused.err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], "give either -b (one broker) or -c (a cluster)"),
        (["-b", "127.0.0.1:1", "-c", "C"], "give either -b (one broker) or -c (a cluster)"),
        (["-b", "127.0.0.1:1", "-a", "true"], "-a belongs to -c"),
    ],
)
async def test_contradicting_options_are_wrong_usage(words: list[str], wrong: str):
    async with admin_stage({"broker-a": {}}) as stage:
        done = await stage.call("updateBrokerConfig", "-k", "traceOn", "-v", "true", *words)
    assert done.code == 2
    assert wrong in " ".join(done.err.split())


async def test_a_dry_run_changes_nothing():
    held = Settings(traceOn="true")
    async with admin_stage({"broker-a": held.scripts}) as stage:
        done = await stage.call(
            "updateBrokerConfig", "-b", stage.address(), "-k", "traceOn", "-v", "false", "--dry-run"
        )
    assert (done.code, held.held) == (0, {"traceOn": "true"})
    assert "would send UPDATE_BROKER_CONFIG" in done.out


async def test_settings_of_a_cluster_are_shown_under_each_broker():
    async with admin_stage({"broker-a": Settings(x="1").scripts, "broker-b": {}}) as stage:
        done = await stage.call("getBrokerConfig", "-c", "DefaultCluster")

    assert done.out == f"============Master: {stage.address()}============\n{'x':50}=  1\n\n"
    assert done.code == 1
    assert done.err.startswith(f"mqadmin: {stage.address('broker-b')}: ")


async def test_name_servers_are_shown_and_changed_together():
    one, other = Settings(enableTopicList="true"), Settings(enableTopicList="false")
    async with admin_stage({"broker-a": {}}, [one.scripts, other.scripts]) as stage:
        shown = await stage.json("getNamesrvConfig")
        done = await stage.call("updateNamesrvConfig", "-k", "enableTopicList", "-v", "false")
        wrong = await stage.call("updateNamesrvConfig", "-k", "enableTopics", "-v", "false")

    first, second = (each.address for each in stage.names)
    assert [(row["addr"], row["settings"]["enableTopicList"]) for row in shown["nameServers"]] == [
        (first, "true"),
        (second, "false"),
    ]
    assert done.out.splitlines() == [
        f"update name server config success![{first}, {second}]",
        "enableTopicList : false",
        f"{first} enableTopicList : true -> false",
        f"{second} enableTopicList : false -> false",
    ]
    assert (wrong.code, wrong.err) == (
        1,
        f"mqadmin: {first}: there is no setting 'enableTopics'; did you mean enableTopicList?\n",
    )


async def test_a_name_server_that_is_gone_leaves_the_others_shown():
    held = Settings(listenPort="1").scripts
    async with admin_stage({"broker-a": {}}, [held, held]) as stage:
        await stage.names[0].stop()
        done = await stage.call("getNamesrvConfig")
    assert (done.code, done.rows[0]) == (1, [f"============{stage.names[1].address}============"])
    assert done.err.startswith(f"mqadmin: {stage.names[0].address}: connect to")


@pytest.mark.parametrize(
    ("body", "wrong"), [(b"a=\xff", "are not UTF-8: invalid start byte at byte 2"), (b"a=\\u12", "cannot be read")]
)
async def test_settings_that_cannot_be_read_are_the_servers_fault(body: bytes, wrong: str):
    scripts: dict[int, Script] = {RequestCode.GET_BROKER_CONFIG: lambda _fields, _body: response(body=body)}
    async with admin_stage({"broker-a": scripts}) as stage:
        done = await stage.call("getBrokerConfig", "-b", stage.address())
    assert (done.code, done.out, wrong in done.err) == (1, "", True)


async def test_a_value_that_is_not_read_back_has_changed_nevertheless():
    held = Settings(traceOn="true")
    reads = []

    def once(fields: dict[str, str], body: bytes) -> Command:
        reads.append(fields)
        return held.get(fields, body) if len(reads) % 2 else response(ResponseCode.SYSTEM_ERROR, "busy")

    held.scripts |= {RequestCode.GET_BROKER_CONFIG: once, RequestCode.GET_NAMESRV_CONFIG: once}
    async with admin_stage({"broker-a": held.scripts}, [held.scripts]) as stage:
        broker = await stage.call("updateBrokerConfig", "-b", stage.address(), "-k", "traceOn", "-v", "false")
        server = await stage.call("updateNamesrvConfig", "-k", "traceOn", "-v", "true")

    assert (broker.code, server.code) == (1, 1)
    assert broker.out.splitlines()[1] == "traceOn : true -> (not read)"
    assert server.out.splitlines()[2] == f"{stage.names[0].address} traceOn : false -> (not read)"
    for done, address in ((broker, stage.address()), (server, stage.names[0].address)):
        assert done.err.startswith(f"mqadmin: {address}: changed, but the new value could not be read: ")


async def test_nothing_is_changed_when_a_name_server_cannot_be_read():
    one, other = Settings(traceOn="true"), Settings(traceOn="true")
    del other.scripts[RequestCode.GET_NAMESRV_CONFIG]
    async with admin_stage({"broker-a": {}}, [one.scripts, other.scripts]) as stage:
        done = await stage.call("updateNamesrvConfig", "-k", "traceOn", "-v", "false")
    assert (done.code, one.held, "agreed" in done.err) == (1, {"traceOn": "true"}, False)


async def test_a_change_that_one_name_server_refuses_names_the_one_that_has_it():
    one, other = Settings(listenPort="1"), Settings(listenPort="2")
    one.scripts[RequestCode.UPDATE_NAMESRV_CONFIG] = lambda _fields, _body: response()
    async with admin_stage({"broker-a": {}}, [one.scripts, other.scripts]) as stage:
        done = await stage.call("updateNamesrvConfig", "-k", "listenPort", "-v", "1")
    assert done.code == 1
    assert done.err.endswith(f"; {stage.names[0].address} had agreed already; repeat it once all name servers answer\n")
