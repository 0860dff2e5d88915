"""Credentials and TLS: where they come from, and what is refused."""

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rocketbroker.app.mqadmin.access import client_settings, tools_credentials
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.named_clusters import Chosen, NamedCluster, chosen_cluster, read_clusters
from rocketbroker.client.core.client_config import SessionCredentials
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.certificates import server_context, tls_tunnel
from tests.support.scripted_server import name_server, route_of

ENVIRONMENT = {"ROCKETMQ_ACCESS_KEY": "env", "ROCKETMQ_SECRET_KEY": "env-secret"}
TOOLS = "accessKey: tools\nsecretKey: tools-secret\n"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_cluster_comes_first_then_the_environment_then_tools_yml(tmp_path: Path):
    written(tmp_path / "conf" / "tools.yml", TOOLS)
    home = {"ROCKETMQ_HOME": str(tmp_path)}
    cluster = NamedCluster("n:1", access_key="own", secret_key="own-secret")

    assert client_settings(cluster, Chosen(), home | ENVIRONMENT).credentials == SessionCredentials("own", "own-secret")
    plain = NamedCluster("n:1")
    assert client_settings(plain, Chosen(), home | ENVIRONMENT).credentials == SessionCredentials("env", "env-secret")
    assert client_settings(plain, Chosen(), home).credentials == SessionCredentials("tools", "tools-secret")
    assert client_settings(plain, Chosen(), {"ROCKETMQ_HOME": str(tmp_path / "none")}).credentials is None
    assert client_settings(plain, Chosen(), {}).credentials is None


@pytest.mark.parametrize("missing", sorted(ENVIRONMENT))
def test_one_of_the_two_variables_is_not_enough(missing: str):
    environment = {name: value for name, value in ENVIRONMENT.items() if name != missing}

    with pytest.raises(typer.BadParameter, match=f"is set and {missing} is not"):
        client_settings(NamedCluster("n:1"), Chosen(), environment)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("accessKey: a\nsecretKey: b\n", "b"),
        ("# ours\n---\n\naccessKey: 'a' # who\nsecretKey: 'it''s: #1'\r\nother: 1\n", "it's: #1"),
        ('secretKey: "b c"   # what\naccessKey: a', "b c"),
        ("secretKey: 12345678\naccessKey: a", "12345678"),
        ("secretKey: a#b:c=\naccessKey: a", "a#b:c="),
    ],
)
def test_tools_yml_is_read(tmp_path: Path, text: str, secret: str):
    path = written(tmp_path / "tools.yml", text)

    assert tools_credentials(path) == SessionCredentials("a", secret)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no accessKey and no secretKey"),
        ("accessKey: a\nsecretKey:\n", "has no secretKey; write"),
        ("accessKey: a\nsecretKey: hidden words\n", "line 2: it is not a line such as"),
        ('accessKey: a\nsecretKey: "hidden\\n"\n', "line 2"),
        ("accessKey: a\n  - hidden\n", "line 2"),
        ("accessKey: &hidden a\n", "line 1"),
        ("accessKey: a\nsecretKey: hidden\nsecretKey: hidden\n", "line 3: secretKey is there twice"),
        ("x" * 70_000, "more than 65,536 bytes"),
    ],
)
def test_a_wrong_tools_yml_is_refused_without_its_secret(tmp_path: Path, text: str, fault: str):
    path = written(tmp_path / "tools.yml", text)

    with pytest.raises(typer.BadParameter, match=fault) as raised:
        tools_credentials(path)
    assert "hidden" not in str(raised.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "tools.yml"
    path.write_bytes(b"accessKey: \xff")

    with pytest.raises(typer.BadParameter, match="byte 12 is not UTF-8"):
        tools_credentials(path)


def test_a_tools_yml_that_others_can_read_is_used_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path / "tools.yml", TOOLS, 0o644)

    assert tools_credentials(path) == SessionCredentials("tools", "tools-secret")
    assert f"warning: {path} has mode 0644" in capsys.readouterr().err


# -- the file of clusters


def test_the_secret_is_in_the_file_or_in_one_beside_it(tmp_path: Path):
    written(tmp_path / "prod.secret", "prod-secret\nmore\n")
    path = written(
        tmp_path / "mqadmin.toml",
        "[clusters.dev]\nnamesrvAddr = 'n:1'\naccessKey = 'a'\nsecretKey = 'dev-secret'\n"
        "[clusters.prod]\nnamesrvAddr = 'n:2'\naccessKey = 'b'\nsecretKeyFile = 'prod.secret'\n",
    )

    for name, expected in {"dev": ("a", "dev-secret"), "prod": ("b", "prod-secret")}.items():
        chosen = Chosen(name, path)
        assert client_settings(chosen_cluster(None, chosen), chosen).credentials == SessionCredentials(*expected)
    assert "secret" not in repr(read_clusters(path))


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("accessKey = 'a'", "accessKey and its secret belong together"),
        ("secretKey = 'hidden'", "accessKey and its secret belong together"),
        ("accessKey = 'a'\nsecretKey = 'hidden'\nsecretKeyFile = 'f'", "has secretKey and secretKeyFile"),
        ("caFile = 'ca.pem'", "belong to tls = true"),
        ("tls = true\nkeyFile = 'key.pem'", "add certFile"),
        ("tls = 'yes'", "Expected `bool"),
        ("accessKey = 'a'\nsecretKey = 'hidden", "at end of document"),
    ],
)
def test_settings_that_do_not_fit_are_named_without_the_secret(tmp_path: Path, lines: str, fault: str):
    path = written(tmp_path / "mqadmin.toml", f"[clusters.dev]\nnamesrvAddr = 'n:1'\n{lines}")

    with pytest.raises(typer.BadParameter, match=fault) as raised:
        read_clusters(path)
    assert "hidden" not in str(raised.value)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_files_with_a_secret_that_others_can_read_are_refused(tmp_path: Path):
    text = "[clusters.dev]\nnamesrvAddr = 'n:1'\naccessKey = 'a'\n"
    with pytest.raises(
        typer.BadParameter, match=r"mode 0640, so that others can use it; run: chmod 600 .*; it has a sec"
    ):
        read_clusters(written(tmp_path / "one.toml", f"{text}secretKey = 'b'", 0o640))
    written(tmp_path / "b.secret", "b", 0o604)
    chosen = Chosen("dev", written(tmp_path / "two.toml", f"{text}secretKeyFile = 'b.secret'", 0o644))

    with pytest.raises(typer.BadParameter, match=r"secretKeyFile .*b\.secret has mode 0604"):
        client_settings(chosen_cluster(None, chosen), chosen)


@pytest.mark.parametrize(("text", "fault"), [("", "its first line is empty"), (None, "No such file")])
def test_a_file_without_a_secret_is_named(tmp_path: Path, text: str | None, fault: str):
    path = tmp_path / "b.secret"
    if text is not None:
        written(path, text)
    cluster = NamedCluster("n:1", access_key="a", secret_key_file=str(path))

    with pytest.raises(typer.BadParameter, match=f"secretKeyFile .*b.secret: {fault}"):
        client_settings(cluster, Chosen(), {})


# -- TLS


def test_tls_is_off_unless_asked_for(tmp_path: Path):
    server_context(tmp_path)
    ca_file = tmp_path / "certificate.pem"

    assert client_settings(NamedCluster("n:1"), Chosen(), {}).tls is False
    for cluster, chosen in (
        (NamedCluster("n:1", tls=True, ca_file=str(ca_file)), Chosen()),
        (NamedCluster("n:1"), Chosen(ca_file=ca_file)),
        (NamedCluster("n:1"), Chosen(tls=True)),
    ):
        context: Any = client_settings(cluster, chosen, {}).tls
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path):
    server_context(tmp_path)
    (tmp_path / "key.pem").chmod(0o600)
    written(tmp_path / "open.pem", (tmp_path / "key.pem").read_text(), 0o644)
    certificate = str(tmp_path / "certificate.pem")

    def fault(**settings: Any) -> str:
        with pytest.raises(typer.BadParameter) as raised:
            client_settings(NamedCluster("n:1", tls=True, **settings), Chosen(), {})
        return str(raised.value)

    assert "certificates of issuers in /no/such cannot be used" in fault(ca_file="/no/such")
    assert "issuers" in fault(ca_file=str(tmp_path / "key.pem"))
    assert "open.pem has mode 0644" in fault(cert_file=certificate, key_file=str(tmp_path / "open.pem"))
    assert "both must be in PEM" in fault(cert_file=str(tmp_path / "key.pem"))
    cluster = NamedCluster("n:1", tls=True, cert_file=certificate, key_file=str(tmp_path / "key.pem"))
    assert isinstance(client_settings(cluster, Chosen(), {}).tls, ssl.SSLContext)


async def test_a_sub_command_signs_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "joe")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "joe-password")
    context = await asyncio.to_thread(server_context, tmp_path)
    async with (
        name_server({"T": route_of({"broker-a": "127.0.0.1:1"})}) as names,
        tls_tunnel(names.address, context) as address,
    ):
        words = ["--ca-file", str(tmp_path / "certificate.pem"), "topicRoute", "-t", "T", "--json", "-n", address]
        done = await asyncio.to_thread(CliRunner().invoke, app, words)
        plain = await asyncio.to_thread(CliRunner().invoke, app, words[2:])

    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["brokerDatas"][0]["brokerName"] == "broker-a"
    asked = names.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)[0].fields
    assert (asked["AccessKey"], "Signature" in asked) == ("joe", True)
    assert "joe-password" not in str(names.asked)
    assert plain.exit_code == 1
