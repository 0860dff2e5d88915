"""Options of bench that contradict each other, and what it prints."""

from collections.abc import Iterable

import msgspec
import pytest
import typer

from rocketbroker.app.mqadmin.bench import bench, loads_of, report_of
from rocketbroker.app.mqadmin.bench_loads import FIGURES, Load, LoadSettings, Outcome
from rocketbroker.app.terminal import Table
from rocketbroker.client import AdminClient
from rocketbroker.client.core.errors import TopicRouteError
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import RemotingConnectError

NOBODY = "127.0.0.1:1"
SETTINGS = LoadSettings("T", 16, 256, 1024, 32, 200, None, 5)


def outcome(load: Load, **changes: object) -> Outcome:
    usual = Outcome(load, 10, 0, 2.0, 5.0, 0.01, dict.fromkeys(FIGURES, 1.5), 0.25)
    return msgspec.structs.replace(usual, **changes)


def test_loads_run_in_their_order_once_each():
    assert loads_of("e2e, SYNC,,sync") == [Load.SYNC, Load.E2E]


@pytest.mark.parametrize(("text", "said"), [("", "nothing is no load"), ("sync,fast", "fast is no load")])
def test_other_names_are_no_loads(text: str, said: str):
    with pytest.raises(typer.BadParameter, match=f"{said}; give some of sync, async, batch, consume, e2e"):
        loads_of(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 5000}, "use -b 4096 or less"),
        ({"clean": True}, "add --create or leave them out"),
        ({"cluster": "C"}, "add --create or leave them out"),
        ({"topic": "a b"}, "illegal characters"),
    ],
)
async def test_options_that_cannot_be_honoured_are_rejected_before_a_request(options: dict[str, object], said: str):
    async with AdminClient(NOBODY) as admin:
        with pytest.raises(typer.BadParameter, match=said):
            await bench(admin, **{"topic": "T", **options})  # type: ignore[arg-type]


def test_a_report_names_what_stays_and_what_failed():
    outcomes = [
        outcome(Load.SYNC, client_busy=0.97),
        outcome(Load.CONSUME, messages=0, latency_ms={}),
        outcome(Load.E2E, failed=2, error="broker busy"),
    ]
    report = report_of(SETTINGS, outcomes, created=False, removed=False, stopped=True)
    table, *texts = report.parts
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["sync", "consume", "e2e"]
    assert table.rows[1][5:10] == ["-"] * 5
    assert {len(row) for row in table.rows} == {len(table.columns)}
    text = "\n".join(map(str, texts))
    assert "sync: this process used a whole CPU" in text
    assert "T has no messages to consume" in text
    assert "20 messages stay in topic T" in text
    assert report.failures == [
        "e2e: 2 of 12 messages failed; first error: broker busy",
        "stopped by Ctrl-C; the figures are those until then",
    ]
    assert report.data["interrupted"] is True


def test_a_report_says_that_the_topic_was_deleted():
    report = report_of(SETTINGS, [outcome(Load.SYNC)], created=True, removed=True, stopped=False)
    assert "topic T was deleted, with its messages." in report.parts
    assert not report.failures


async def test_a_topic_that_was_created_in_part_is_deleted_again(capsys: pytest.CaptureFixture[str]):
    deleted: list[object] = []

    class OneMasterRefuses(AdminClient):
        async def examine_topic_route_info(self, topic: str) -> TopicRouteData:
            raise TopicRouteError(topic)

        async def fetch_master_addresses(self, cluster: str) -> dict[str, str]:
            return {"a": "a:1", "b": "b:1"}

        async def create_and_update_topic_config(self, address: str, config: TopicConfig) -> None:
            if address == "b:1":
                raise RemotingConnectError("b is down")

        async def delete_topic_in_broker(self, addresses: Iterable[str], topic: str) -> None:
            if addresses == ["b:1"]:
                raise RemotingConnectError("b is still down")
            deleted.extend([*addresses, topic])

        async def delete_topic_in_name_server(self, topic: str, cluster: str | None = None) -> None:
            deleted.extend([topic, cluster])

    async with OneMasterRefuses(NOBODY) as admin:
        with pytest.raises(RemotingConnectError, match="b is down"):
            await bench(admin, topic="T", create=True, clean=True, cluster="C")
        assert deleted == ["a:1", "T", "T", "C"]
    assert "b:1 keeps topic T: b is still down" in capsys.readouterr().err
