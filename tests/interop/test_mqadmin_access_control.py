"""mqadmin's sub-commands of access control, Apache's and ours, at brokers of both that ask for signatures and rights.

Ours signs, and uses TLS, as a file of clusters says. Apache's tool has its credentials in ``conf/tools.yml``.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.admin_schemas import checked_json
from tests.support.certificates import server_context
from tests.support.java import Java
from tests.support.java_toolchain import require_java
from tests.support.our_servers import OurServers
from tests.support.two_mqadmins import ApacheTool, Case, Ran, any_order, lines, run_ours, table

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

AUTH = "org.apache.rocketmq.auth"
USER, SECRET = "admin", "secret-12345"
JOE = "createUser -b {broker} -u joe -p joe-password"
JOE_ELSEWHERE = "createUser -b {other} -u joe -p joe-password"
NO_JOE = "deleteUser -b {broker} -u joe"
POLICY = "createAcl -b {broker} -s User:joe -r Topic:T1,Topic:T2*,Group:G -a Pub,Sub -d Allow -i 10.0.0.0/8,::1"
USERS = table("Password")

# Apache's tool and broker skip the unknown action in silence; its broker does not know the resource either, and deletes
# all policies.
UNKNOWN_ACTION = Case("createAcl -b {broker} -s User:joe -r Topic:T1 -a Pub,Write -d Allow", only_ours=True)
UNKNOWN_RESOURCE = Case("deleteAcl -b {broker} -s User:joe -r Topics:T1", before=(NO_JOE, JOE, POLICY), only_ours=True)
COPIED = Case("copyUser -f {broker} -t {other} -u joe")
CASES = [
    Case(JOE, before=(NO_JOE,)),
    Case("createUser -c DefaultCluster -u joe -p joe-password -t Super", before=(NO_JOE,)),
    Case("createUser -b {broker} -u admin -p joe-password", fails=True),
    Case("createUser -c NoCluster -u joe -p joe-password", fails=True),
    Case("updateUser -b {broker} -u joe -t Super", before=(NO_JOE, JOE)),
    Case("updateUser -c DefaultCluster -u joe -s disable", before=(NO_JOE, JOE)),
    Case("getUser -b {broker} -u joe", USERS),
    Case("updateUser -b {broker} -u joe -p other-password"),
    Case("updateUser -b {broker} -u nobody -s disable", fails=True),
    Case("getUser -c DefaultCluster -u joe", USERS),
    Case("getUser -b {broker} -u nobody", only_ours=True),
    Case("listUser -b {broker}", USERS),
    Case("listUser -c DefaultCluster -f jo", lambda text: (USERS(text), lines(text)[-1])),
    Case("listUser -c DefaultCluster -f nobody"),
    COPIED,
    Case("copyUser -f {broker} -t {other}", any_order),
    Case("copyUser -f {broker} -t {other} -u nobody", only_ours=True),
    Case("listUser -b {other}", USERS),
    Case("createAcl -b {broker} -s User:joe -r Topic:T1 -a Pub,Sub -d Allow", before=(NO_JOE, JOE)),
    Case("createAcl -c DefaultCluster -s User:joe -r * -a All -d Deny"),
    Case("createAcl -b {broker} -s User:nobody -r Topic:T1 -a Pub -d Allow", fails=True),
    UNKNOWN_ACTION,
    Case("createAcl -b {broker} -s User:joe -r Topic:T1 -a Pub -d Allow -i 10.0.0.300", fails=True),
    Case("updateAcl -b {broker} -s User:joe -r Topic:T1 -a Pub -d Deny", before=(NO_JOE, JOE, POLICY)),
    Case("getAcl -b {broker} -s User:joe", table()),
    Case("getAcl -c DefaultCluster -s User:joe", table()),
    Case("getAcl -b {broker} -s User:nobody", fails=True),
    Case("getAcl -b {broker} -s User:joe", before=(NO_JOE, JOE), only_ours=True),
    Case("listAcl -b {broker}", table(), before=(NO_JOE, JOE, POLICY)),
    Case("listAcl -c DefaultCluster -s joe -r T1", table()),
    Case("listAcl -c DefaultCluster -s nobody"),
    Case("copyAcl -f {broker} -t {other} -s User:joe"),
    Case("copyAcl -f {broker} -t {other}"),
    Case("copyAcl -f {broker} -t {other} -s User:nobody", fails=True),
    Case("listAcl -b {other}", table()),
    Case("deleteAcl -b {broker} -s User:joe -r Topic:T1", before=(NO_JOE, JOE, POLICY)),
    Case("getAcl -b {broker} -s User:joe", table()),
    UNKNOWN_RESOURCE,
    Case("deleteAcl -c DefaultCluster -s User:joe", before=(NO_JOE, JOE, POLICY)),
    Case("deleteAcl -b {broker} -s User:nobody", fails=True),
    Case("deleteUser -b {broker} -u joe", before=(NO_JOE, JOE)),
    Case("deleteUser -c DefaultCluster -u nobody"),
]


def cases_at(side: str) -> Iterator[Case]:
    """Yield the command lines for brokers of a side; ours check what they get, and tell no password to copy."""
    for case in CASES:
        if side == "apache":
            yield case
        elif case in {UNKNOWN_ACTION, UNKNOWN_RESOURCE}:
            yield case._replace(only_ours=False, fails=True)
        elif case == COPIED:
            yield case._replace(fails=True)
            yield case._replace(values=first_words, before=("deleteUser -b {other} -u joe", JOE_ELSEWHERE))
        elif case.command.startswith("copyUser"):
            yield case._replace(values=first_words)
        else:
            yield case


def first_words(text: str) -> list[str]:
    """Return the first words of each line, sorted; ours also says which password stays."""
    return sorted(line.split(" success.")[0] for line in lines(text))


class Servers(NamedTuple):
    """Side of the brokers, addresses to fill in, the file of clusters, and Apache's tool."""

    side: str
    places: dict[str, str]
    clusters: Path
    tool: ApacheTool

    def ours(self, command: str, *options: str, cluster: str = "admin") -> Ran:
        """Run a command of ours as a user of the file."""
        words = command.format(**self.places).split()
        return run_ours(["--config", str(self.clusters), "--cluster", cluster, *words, *options])

    def apaches(self, command: str) -> Ran:
        """Run a command of Apache's tool."""
        return self.tool.run([*command.format(**self.places).split(), "-n", self.places["namesrv"]])


# Each command against Apache's brokers makes new TLS connections, whose handshakes take those a minute of CPU time.
@pytest.fixture(scope="module", params=[pytest.param("apache", marks=pytest.mark.soak), "ours"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two protected brokers, the second of another cluster; both take TLS and plain connections."""
    require_java()
    java = Java(tmp_path_factory.mktemp("java"), serves_tls=True)
    (java.home / "conf" / "tools.yml").write_text(f"accessKey: {USER}\nsecretKey: {SECRET}\n")
    folder = tmp_path_factory.mktemp("access")
    kit = java if request.param == "apache" else OurServers(folder)
    try:
        places = start_servers(kit, folder)
        yield Servers(request.param, places, clusters_file(folder, places["namesrv"]), ApacheTool(java))
    finally:
        kit.close()
        java.close()


def start_servers(kit: Java | OurServers, folder: Path) -> dict[str, str]:
    """Start a name server and two brokers and return their addresses."""
    server_context(folder)
    tls = {"tls.test.mode.enable": "false", "tls.server.need.client.auth": "none"}
    tls |= {"tls.server.keyPath": f"{folder}/key.pem", "tls.server.certPath": f"{folder}/certificate.pem"}
    (folder / "tls.properties").write_text("".join(f"{name}={value}\n" for name, value in tls.items()))
    settings: dict[str, Any] = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": USER, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": SECRET}),
    }
    with pytest.MonkeyPatch.context() as changes:
        if isinstance(kit, Java):
            changes.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.config.file={folder}/tls.properties")
            namesrv = kit.namesrv()
        else:
            settings["tls.config.file"] = f"{folder}/tls.properties"
            namesrv = kit.namesrv(**settings)
        broker = kit.broker(namesrv.address, **settings)
        other = kit.broker(namesrv.address, **settings | {"brokerClusterName": "Other", "brokerName": "broker-other"})
    return {"namesrv": namesrv.address, "broker": broker.address, "other": other.address}


def clusters_file(folder: Path, namesrv: str) -> Path:
    """Write the file of clusters, one of each user."""
    (folder / "admin.secret").write_text(f"{SECRET}\n")
    (folder / "admin.secret").chmod(0o600)
    access = f"namesrvAddr = '{namesrv}'\ntls = true\ncaFile = 'certificate.pem'\n"
    path = folder / "mqadmin.toml"
    path.write_text(
        f"[clusters.admin]\naccessKey = '{USER}'\nsecretKeyFile = 'admin.secret'\n{access}"
        f"[clusters.joe]\naccessKey = 'joe'\nsecretKey = 'joe-password'\n{access}"
        f"[clusters.unsigned]\n{access}"
    )
    path.chmod(0o600)
    return path


async def test_both_tools_print_the_same(servers: Servers):
    different: dict[str, Any] = {}
    for case in cases_at(servers.side):
        found: list[Any] = []
        for name in ("apache", "ours"):
            for command in case.before:
                await asyncio.to_thread(servers.ours, command)
            ran = await asyncio.to_thread(servers.apaches if name == "apache" else servers.ours, case.command)
            assert ran.failed == case.fails_with(name), (name, case.command, ran)
            found.append(ran.out if ran.failed else case.values(ran.out))
            if name == "ours":
                for secret in (SECRET, "joe-password", "other-password"):
                    assert secret not in ran.out + ran.err, case.command
        if not (case.fails or case.only_ours) and found[0] != found[1]:
            different[case.command] = found
        if not case.fails and not case.only_ours:
            for command in case.before:
                await asyncio.to_thread(servers.ours, command)
            ran = await asyncio.to_thread(servers.ours, case.command, "--json")
            checked_json(case.command.split()[0], ran.out)
    assert different == {}


async def test_a_refused_user_learns_why(servers: Servers):
    def run(command: str, cluster: str = "admin") -> Ran:
        return servers.ours(command, cluster=cluster)

    assert not (await asyncio.to_thread(run, JOE)).failed
    unsigned = await asyncio.to_thread(run, "listUser -b {broker}", "unsigned")
    assert (unsigned.failed, "username cannot be null" in unsigned.err) == (True, True)
    refused = await asyncio.to_thread(run, "listUser -b {broker}", "joe")
    assert (refused.failed, "User:joe has no permission to access Cluster:DefaultCluster" in refused.err) == (
        True,
        True,
    )
    allow = "createAcl -b {broker} -s User:joe -r Cluster:DefaultCluster -a Get -d Allow"
    assert not (await asyncio.to_thread(run, allow)).failed
    allowed = await asyncio.to_thread(run, "listUser -b {broker}", "joe")
    assert (allowed.failed, "joe" in allowed.out) == (False, True)
    assert (await asyncio.to_thread(run, "deleteUser -b {broker} -u admin", "joe")).failed
