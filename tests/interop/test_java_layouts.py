"""Each layout of brokers on one machine, with Apache's mqadmin and the Java client."""

import asyncio
import re
import subprocess

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from tests.support.java import Java
from tests.support.java_lines import check_content, got, sent
from tests.support.our_servers import OurServer, OurServers, make_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.soak, pytest.mark.timeout(600)]

MESSAGES = 400
# Brokers of each layout by name and id.
LAYOUTS = {
    "": ["broker-a 0"],
    "2m-noslave": ["broker-a 0", "broker-b 0"],
    "2m-2s-async": ["broker-a 0", "broker-a 1", "broker-b 0", "broker-b 1"],
    "2m-2s-sync": ["broker-a 0", "broker-a 1", "broker-b 0", "broker-b 1"],
}


def start(servers: OurServers, layout: str) -> tuple[OurServer, str]:
    """Start mqdev; return it and the address of its name server."""
    ready, log = servers.home / "ready.env", servers.home / "mqdev.out"
    options = [*(["--layout", layout] if layout else []), "--ephemeral", "--ready-file", str(ready)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            servers.command("testing.mqdev", *options), stdout=out, stderr=subprocess.STDOUT,
            cwd=servers.home, env=servers.environment(),
        )  # fmt: skip
    server = OurServer("mqdev", process, log)
    servers.started.append(server)
    server.wait_until(ready.exists, 120, "be ready")
    return server, ready.read_text().strip().removeprefix("NAMESRV_ADDR=")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_apaches_tools_and_the_java_client_use_a_layout(layout: str, java: Java, our_servers: OurServers):
    mqdev, namesrv = start(our_servers, layout)

    def admin(*words: str) -> str:
        done = java.mqadmin(*words, namesrv=namesrv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    rows = re.findall(r"^DefaultCluster\s+(\S+ +\d+) +(\S+)", admin("clusterList"), re.MULTILINE)
    assert sorted(" ".join(broker.split()) for broker, _ in rows) == LAYOUTS[layout]
    addresses = {" ".join(broker.split()): address for broker, address in rows}
    masters = {name: address for name, address in addresses.items() if name.endswith(" 0")}
    for address in masters.values():
        make_topic(address, namesrv, "T", 4)
    if layout == "2m-2s-sync":
        # A slave counts once the name server knows it, and the master has asked.
        wait_until(lambda: is_sync(java, namesrv), "sends wait for slaves with success")

    done = java.run("Produce", f"namesrv={namesrv}", "topic=T", f"plan=sync:{MESSAGES}:4", "first=1000")
    acknowledged = sent(done.stdout)
    assert {each.status for each in acknowledged} == {"SEND_OK"}
    consumer = java.start("Push", f"namesrv={namesrv}", "topic=T", "group=G", f"stopAfter={MESSAGES}")
    consumer.wait_for("DONE")
    messages = [each for each in got(consumer.text()) if each.n >= 1000]
    assert sorted(each.n for each in messages) == [1000 + number for number in range(MESSAGES)]
    check_content(messages)

    wait_until(lambda: all_copied(namesrv, addresses), "slaves have the log of their masters")
    for name, address in addresses.items():
        status = dict(re.findall(r"^(\S+)\s*: (.*)$", admin("brokerStatus", "-b", address), re.MULTILINE))
        assert status["brokerActive"] == str(name.endswith(" 0")).lower(), status
        assert "replicationProblem" not in status
        check_ha_status(admin("haStatus", "-b", address), name, addresses)
    assert mqdev.stop() == 0


def is_sync(java: Java, namesrv: str) -> bool:
    done = java.run("Produce", f"namesrv={namesrv}", "topic=T", "plan=sync:16:1")
    return {each.status for each in sent(done.stdout)} == {"SEND_OK"}


def all_copied(namesrv: str, addresses: dict[str, str]) -> bool:
    async def ends() -> dict[str, str]:
        async with AdminClient(namesrv) as admin:
            return {
                name: (await admin.fetch_broker_runtime_stats(address))["commitLogMaxOffset"]
                for name, address in addresses.items()
            }

    found = asyncio.run(ends())
    return all(end == found[f"{name.split()[0]} 0"] for name, end in found.items())


def check_ha_status(shown: str, name: str, addresses: dict[str, str]) -> None:
    """Check the answer of a master, with its slaves, or of a slave."""
    broker, number = name.split()
    if number == "1":
        # mqdev takes any free port for replication; a problem would follow the address.
        assert re.search(r"^#MasterAddr\t127\.0\.0\.1:\d+$", shown, re.MULTILINE), shown
        return
    slaves = 1 if f"{broker} 1" in addresses else 0
    assert f"#SlaveNum\t{slaves}" in shown, shown
    assert shown.count(" OK ") == slaves, shown
