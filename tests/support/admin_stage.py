"""mqadmin in this process against scripted name servers and brokers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from typer.testing import CliRunner

from rocketbroker.app.mqadmin.cli import app
from rocketbroker.codec.remoting.bodies.route import BrokerData
from tests.support.admin_schemas import checked_json
from tests.support.scripted_server import Script, ScriptedServer, name_server, route_of


class Done(NamedTuple):
    """Exit code and output of a command; its output in words by line."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


class AdminStage:
    """Masters of DefaultCluster with the topics of one route, their name servers, and mqadmin to call."""

    def __init__(self, names: list[ScriptedServer], brokers: Mapping[str, ScriptedServer]) -> None:
        self.names = names
        self.brokers = brokers
        self.namesrv = ";".join(each.address for each in names)

    def address(self, broker: str = "broker-a") -> str:
        return self.brokers[broker].address

    async def call(self, *words: str) -> Done:
        """Run a command to its end; an exception that the tool would not catch fails the test."""
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-n", self.namesrv])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    async def json(self, *words: str) -> Any:
        """Return what a command that succeeds prints as JSON; it fits its schema."""
        done = await self.call(*words, "--json")
        assert (done.code, done.err) == (0, "")
        return checked_json(words[0], done.out)

    async def failed_json(self, *words: str) -> Any:
        """Return what a command that fails prints as JSON; it fits its schema, and stderr has the reason."""
        done = await self.call(*words, "--json")
        assert (done.code, done.err[:9]) == (1, "mqadmin: ")
        return checked_json(words[0], done.out)


@asynccontextmanager
async def admin_stage(
    brokers: Mapping[str, dict[int, Script]],
    name_servers: list[dict[int, Script]] | None = None,
    topics: tuple[str, ...] = ("T",),
    slaves_only: tuple[str, ...] = (),
) -> AsyncIterator[AdminStage]:
    """Start the servers, with scripts by broker name and for each name server; one without scripts by default.

    Brokers in ``slaves_only`` are registered too, each with one slave that does not run.
    """
    async with AsyncExitStack() as stack:
        masters = {name: await stack.enter_async_context(ScriptedServer(own)) for name, own in brokers.items()}
        route = route_of({name: server.address for name, server in masters.items()})
        route.broker_datas += [BrokerData("DefaultCluster", name, {1: "127.0.0.1:1"}) for name in slaves_only]
        routes = dict.fromkeys(topics, route)
        names = [await stack.enter_async_context(name_server(routes, own)) for own in name_servers or [{}]]
        yield AdminStage(names, masters)
