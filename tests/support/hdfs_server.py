"""A namenode and a datanode of Hadoop in one process, and libhdfs, through which pyarrow reads from them."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from rocketbroker.analytics.spark.local_session import ensure_java_home
from tests.support.java_process import JavaProcess
from tests.support.java_toolchain import cache_dir, hadoop_cluster_jar, made_once
from tests.support.ports import free_ports

BOOT_LIMIT_S = 300
BUILD_LIMIT_S = 300
# No package of Python or Maven has libhdfs; this one of Rust has the source of Hadoop's.
SOURCE = "hdfs-sys"
VERSION = "0.3.1"
MANIFEST = f"""
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
{SOURCE} = "={VERSION}"
"""


def libhdfs_folder() -> Path:
    """Return the folder of libhdfs, built at first use; skip the test where it cannot be built."""
    if missing := [tool for tool in ("cargo", "cc") if shutil.which(tool) is None]:
        pytest.skip(f"needs-libhdfs: building it needs {', '.join(missing)}")
    return made_once(cache_dir() / f"libhdfs-{VERSION}", _build)


def _build(folder: Path) -> None:
    crates = folder / "crates"
    (crates / "src").mkdir(parents=True)
    (crates / "src" / "lib.rs").touch()
    (crates / "Cargo.toml").write_text(MANIFEST)
    fetch = ["cargo", "vendor", "--quiet", "vendor"]
    subprocess.run(fetch, cwd=crates, check=True, capture_output=True, timeout=BUILD_LIMIT_S)
    shared = crates / "vendor" / SOURCE / "libhdfs"
    source, java = shared / "hdfs_3_3", ensure_java_home()
    files = [path for path in source.rglob("*.c") if "windows" not in path.parts]
    within = [source, source / "include", source / "os", source / "os" / "posix", java / "include"]
    headers = [f"-I{path}" for path in (shared, *within, java / "include" / "linux")]
    jvm = java / "lib" / "server"
    command = ["cc", "-O1", "-fPIC", "-shared", "-w", "-D_GNU_SOURCE", *headers, *map(str, files)]
    command += ["-o", str(folder / "libhdfs.so"), f"-L{jvm}", "-ljvm", "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, timeout=BUILD_LIMIT_S)
    shutil.rmtree(crates)


def _jars() -> list[str]:
    return [str(path) for path in sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))]


def client_environment() -> dict[str, str]:
    """Return the environment of a program that reads through libhdfs."""
    java = str(ensure_java_home())
    return {"ARROW_LIBHDFS_DIR": str(libhdfs_folder()), "JAVA_HOME": java, "CLASSPATH": ":".join(_jars())}


@dataclass(frozen=True)
class HdfsServer:
    """A running namenode and its address."""

    address: str
    settings: Path  # folder of core-site.xml, which Hadoop's command asks for

    def put(self, store: Path, path: str) -> None:
        """Copy a folder to ``path``, by Hadoop's own command."""
        command = [_java(), "-cp", ":".join([str(self.settings), *_jars()]), "org.apache.hadoop.fs.FsShell"]
        command += ["-put", str(store), f"{self.address}{path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]


@contextmanager
def hdfs_server(home: Path) -> Iterator[HdfsServer]:
    """Run the servers, with their files in ``home``. Their output is printed."""
    port, details = free_ports(), home / "details"
    options = ["-format", "-nnport", str(port), "-writeDetails", str(details)]
    options += ["-D", f"hdfs.minidfs.basedir={home / 'data'}"]
    command = [_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    command += ["-cp", f"{hadoop_cluster_jar()}:{':'.join(_jars())}", "org.apache.hadoop.test.MiniDFSClusterManager"]
    log = home / "hdfs.out"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *options], stdout=out, stderr=subprocess.STDOUT, cwd=home)
    server = JavaProcess("hdfs", process, log)
    try:
        server.wait_until(details.exists, BOOT_LIMIT_S, "write its details")
        (home / "core-site.xml").write_text("<configuration/>")
        yield HdfsServer(f"hdfs://localhost:{port}", home)
    finally:
        server.kill()
        print(f"----- {server.name} -----\n{server.text()[-4000:]}")


def _java() -> str:
    return str(ensure_java_home() / "bin" / "java")
