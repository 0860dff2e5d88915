"""mqadmin's sub-commands of access control, Apache's and ours, at Apache's broker that asks for signatures and rights.

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
from tests.support.two_mqadmins import ApacheTool, Case, Ran, any_order, lines, run_ours, table

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

AUTH = "org.apache.rocketmq.auth"
USER, SECRET = "admin", "secret-12345"
JOE = "createUser -b {broker} -u joe -p joe-password"
NO_JOE = "deleteUser -b {broker} -u joe"
POLICY = "createAcl -b {broker} -s User:joe -r Topic:T1,Topic:T2*,Group:G -a Pub,Sub -d Allow -i 10.0.0.0/8,::1"
USERS = table("Password")

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
    Case("copyUser -f {broker} -t {other} -u joe"),
    Case("copyUser -f {broker} -t {other}", any_order),
    Case("copyUser -f {broker} -t {other} -u nobody", only_ours=True),
    Case("listUser -b {other}", USERS),
    Case("createAcl -b {broker} -s User:joe -r Topic:T1 -a Pub,Sub -d Allow", before=(NO_JOE, JOE)),
    Case("createAcl -c DefaultCluster -s User:joe -r * -a All -d Deny"),
    Case("createAcl -b {broker} -s User:nobody -r Topic:T1 -a Pub -d Allow", fails=True),
    # Apache's tool and broker skip the unknown action in silence.
    Case("createAcl -b {broker} -s User:joe -r Topic:T1 -a Pub,Write -d Allow", only_ours=True),
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
    # Apache's broker does not know the resource, and deletes all policies.
    Case("deleteAcl -b {broker} -s User:joe -r Topics:T1", before=(NO_JOE, JOE, POLICY), only_ours=True),
    Case("deleteAcl -c DefaultCluster -s User:joe", before=(NO_JOE, JOE, POLICY)),
    Case("deleteAcl -b {broker} -s User:nobody", fails=True),
    Case("deleteUser -b {broker} -u joe", before=(NO_JOE, JOE)),
    Case("deleteUser -c DefaultCluster -u nobody"),
]


class Servers(NamedTuple):
    """Addresses to fill in, the file of clusters, and Apache's tool."""

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


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two protected brokers of Apache's, the second of another cluster; both take TLS and plain connections."""
    require_java()
    java = Java(tmp_path_factory.mktemp("java"), serves_tls=True)
    folder = tmp_path_factory.mktemp("access")
    try:
        yield start_servers(java, folder)
    finally:
        java.close()


def start_servers(java: Java, tmp_path: Path) -> Servers:
    server_context(tmp_path)
    tls = {"tls.test.mode.enable": "false", "tls.server.need.client.auth": "none"}
    tls |= {"tls.server.keyPath": f"{tmp_path}/key.pem", "tls.server.certPath": f"{tmp_path}/certificate.pem"}
    (tmp_path / "tls.properties").write_text("".join(f"{name}={value}\n" for name, value in tls.items()))
    (java.home / "conf" / "tools.yml").write_text(f"accessKey: {USER}\nsecretKey: {SECRET}\n")
    (tmp_path / "admin.secret").write_text(f"{SECRET}\n")
    (tmp_path / "admin.secret").chmod(0o600)
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("JAVA_TOOL_OPTIONS", f"-Dtls.config.file={tmp_path}/tls.properties")
        namesrv = java.namesrv()
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
        broker = java.broker(namesrv.address, **settings)
        settings |= {"brokerClusterName": "Other", "brokerName": "broker-other"}
        other = java.broker(namesrv.address, **settings)
    access = f"namesrvAddr = '{namesrv.address}'\ntls = true\ncaFile = 'certificate.pem'\n"
    (tmp_path / "mqadmin.toml").write_text(
        f"[clusters.admin]\naccessKey = '{USER}'\nsecretKeyFile = 'admin.secret'\n{access}"
        f"[clusters.joe]\naccessKey = 'joe'\nsecretKey = 'joe-password'\n{access}"
        f"[clusters.unsigned]\n{access}"
    )
    (tmp_path / "mqadmin.toml").chmod(0o600)
    places = {"namesrv": namesrv.address, "broker": broker.address, "other": other.address}
    return Servers(places, tmp_path / "mqadmin.toml", ApacheTool(java))


async def test_both_tools_print_the_same(servers: Servers):
    different: dict[str, Any] = {}
    for case in CASES:
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
