"""The Java side of the interop tests works: a driver starts with each of the official clients."""

import pytest

from tests.support.java import Java

pytestmark = pytest.mark.java


@pytest.mark.parametrize(("client", "version"), [("5.5.0", "V5_5_0"), ("4.9.8", "V4_9_8")])
def test_driver_runs_with_each_official_client(java: Java, client: str, version: str):
    done = java.run("ClientVersion", "a b", "c", client=client)

    assert (done.returncode, done.stdout.split(" ", 1)) == (0, [version, "a b,c\n"]), done.stderr
