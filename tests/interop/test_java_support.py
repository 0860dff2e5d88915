"""The Java side of the interop tests works: both clients start, mqadmin sees Apache's own broker."""

import pytest

from tests.support.java import Java
from tests.support.java_process import JavaServer

pytestmark = pytest.mark.java


@pytest.mark.parametrize(("client", "version"), [("5.5.0", "V5_5_0"), ("4.9.8", "V4_9_8")])
def test_driver_runs_with_each_official_client(java: Java, client: str, version: str):
    done = java.run("ClientVersion", "a b", "c", client=client)

    assert (done.returncode, done.stdout.split(" ", 1)) == (0, [version, "a b,c\n"]), done.stderr


def test_mqadmin_lists_apaches_own_broker(java: Java, java_namesrv: JavaServer, java_broker: JavaServer):
    done = java.mqadmin("clusterList", namesrv=java_namesrv.address)

    assert java_broker.address in done.stdout, done.stdout + done.stderr
    assert (java_broker.store / "commitlog").is_dir()
    java_broker.stop()
    assert not (java_broker.store / "abort").exists(), "a broker that is stopped removes its abort file"
