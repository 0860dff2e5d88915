"""mqadmin's sub-commands of access control with our servers, which take signed requests over TLS alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.testing import RocketMQServer
from tests.support.admin_schemas import checked_json
from tests.support.certificates import server_context
from tests.support.two_mqadmins import Ran, run_ours

ROOT, INNER = ("root", "root-secret"), ("inner", "inner-secret")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server_context(tmp_path)
    (tmp_path / "key.pem").chmod(0o600)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[RocketMQServer]:
    certificate = str(folder / "certificate.pem")
    properties = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": str(folder / "key.pem"),
        "tls.enable": "true",
        "tls.client.trustCertPath": certificate,
    }
    with RocketMQServer(properties, brokers=2) as server:
        yield server


class Admin:
    """mqadmin as a user, over TLS."""

    def __init__(self, server: RocketMQServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._brokers: dict[str, str] = {}
        brokers = self.json("listUser -c DefaultCluster")["brokers"]
        self._brokers = {name: each["addr"] for name, each in zip("ab", brokers, strict=True)}

    def run(self, line: str, user: tuple[str, str] = ROOT) -> Ran:
        """Run a sub-command; ``{a}`` and ``{b}`` are the brokers."""
        path = self._folder / "mqadmin.toml"
        path.touch(0o600)
        path.write_text(
            f"[clusters.own]\nnamesrvAddr = '{self._server.namesrv_addr}'\ntls = true\ncaFile = 'certificate.pem'\n"
            f"accessKey = '{user[0]}'\nsecretKey = '{user[1]}'\n"
        )
        words = [word.format(**self._brokers) for word in line.split()]
        return run_ours(["--config", str(path), "--cluster", "own", *words])

    def json(self, line: str) -> Any:
        """Return the JSON value of a sub-command that succeeds."""
        ran = self.run(f"{line} --json")
        assert not ran.failed, ran
        return checked_json(line.split(maxsplit=1)[0], ran.out)


@pytest.fixture
def admin(server: RocketMQServer, folder: Path) -> Admin:
    return Admin(server, folder)


def test_a_user_may_do_what_policies_allow(admin: Admin):
    joe = ("joe", "joe-password")
    assert admin.run("createUser -c DefaultCluster -u joe -p joe-password").out.count("success") == 2
    assert "CODE: 16" in admin.run("topicStatus -t TBW102", joe).err
    assert len(admin.json("createAcl -c DefaultCluster -s User:joe -r Topic:TBW102 -a Get -d Allow")["brokers"]) == 2
    assert not admin.run("topicStatus -t TBW102", joe).failed
    (acl,) = admin.json("getAcl -b {a} -s User:joe")["brokers"][0]["acls"]
    assert acl["policies"][0]["entries"][0]["resource"] == "Topic:TBW102"
    admin.json("updateAcl -c DefaultCluster -s User:joe -r Topic:TBW102 -a Get -d Deny")
    assert admin.run("topicStatus -t TBW102", joe).failed
    admin.json("deleteAcl -c DefaultCluster -s User:joe --yes")
    assert [each["acls"] for each in admin.json("listAcl -c DefaultCluster")["brokers"]] == [[], []]

    admin.json("updateUser -c DefaultCluster -u joe -s disable")
    assert admin.json("getUser -b {b} -u joe")["brokers"][0]["users"] == [
        {"username": "joe", "userType": "Normal", "userStatus": "disable"}
    ]
    admin.json("deleteUser -c DefaultCluster -u joe --yes")
    names = [
        [user["username"] for user in each["users"]] for each in admin.json("listUser -c DefaultCluster")["brokers"]
    ]
    assert names == [["inner", "root"]] * 2


def test_a_copy_needs_the_user_there_since_no_password_is_told(admin: Admin):
    admin.run("createUser -b {a} -u joe -p joe-password")
    admin.json("createAcl -b {a} -s User:joe -r Topic:T,Group:G -a Sub -d Allow")

    assert "mqadmin createUser -b" in admin.run("copyUser -f {a} -t {b} -u joe").err
    assert "by copyUser" in admin.run("copyAcl -f {a} -t {b}").err
    admin.run("createUser -b {b} -u joe -p other-password")
    assert "does not tell passwords" in admin.run("copyUser -f {a} -t {b} -u joe").out
    assert admin.json("copyAcl -f {a} -t {b}")["subjects"] == ["User:joe"]
    copies = [admin.json(f"getAcl -b {{{name}}} -s User:joe")["brokers"][0]["acls"] for name in "ab"]
    assert copies[0] == copies[1]


def test_tls_is_that_of_the_machine_or_missed(server: RocketMQServer, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ROOT[0])
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", ROOT[1])
    words = ["listUser", "-b", server.broker_addr, "-n", server.namesrv_addr]
    assert "demands TLS" in run_ours(["topicList", "-n", server.namesrv_addr]).err
    trusted = f"-Dtls.client.trustCertPath={folder}/certificate.pem"
    monkeypatch.setenv("JAVA_OPT", f"-Xmx1g -Dtls.enable=true {trusted}")
    assert "root" in run_ours(words).out
    monkeypatch.setenv("JAVA_OPT", "-Dtls.enable=perhaps")
    assert "tls.enable" in run_ours(words).err
