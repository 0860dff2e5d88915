"""The official SDKs of the gRPC protocol, each fetched once at a pinned version; tests/interop/sdk has their drivers.

The Go client of the remoting protocol is here, too: from a commit, as no release has TLS for consumers.

Java comes by Maven, as all of Java does. The packages of Python, Node and Go are pinned with hashes and without
addresses, in a file of requirements, a package-lock and a go.sum that `bin/_lock` writes. Cargo's lock names its
registry, so that for Rust only the versions in Cargo.toml are pinned. Each SDK is installed into a folder of its own in
the cache, never into the environment of the tests.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.java_toolchain import (
    SDK,
    cache_dir,
    digest_of,
    driver_classpath,
    find_tools,
    made_once,
    missing_tools,
)

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "sdk"
LANGUAGES = ("java", "python", "node", "go", "rust")
VERSIONS = {"java": "5.2.0", "python": "5.1.2", "node": "1.0.8", "go": "5.1.4", "rust": "5.0.0"}
# Commands that an SDK has nothing for, and `reconnect` where it does not.
LACKING = {"rust": {"change", "recall", "reconnect"}}
# What npm and go are asked for.
NODE_SDK = f"rocketmq-client-nodejs@{VERSIONS['node']}"
GO_SDK = f"github.com/apache/rocketmq-clients/golang/v5@v{VERSIONS['go']}"
INSTALL_LIMIT = 600  # seconds
BUILD_LIMIT = 1800
_LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx256m")


class SdkError(Exception):
    """An SDK could not be installed, or its driver failed; the message holds the output."""


def missing_sdk(language: str) -> str | None:
    """Return the reason why tests of a language cannot run here, or None."""
    if language == "java":
        return missing_tools()
    if language == "node" and not (shutil.which("node") and shutil.which("npm")):
        return "needs-node: node or npm not found (Node 18 or later)"
    if language == "go" and not shutil.which("go"):
        return "needs-go: go not found (Go 1.24 or later)"
    if language == "rust" and not shutil.which("cargo"):
        return "needs-rust: cargo not found (Rust 1.75 or later)"
    return None


def sdk_command(language: str, home: Path) -> list[str]:
    """Return the command of a language's driver, without the address of the proxy; `home` takes the SDK's logs.

    Raises:
        SdkError: the SDK cannot be installed.
    """
    if language == "java":
        classpath = driver_classpath("Sdk", SDK, SOURCES / "java")
        return [find_tools()["java"], *_LIGHT, f"-Duser.home={home}", "-cp", classpath, "Sdk"]
    if language == "python":
        return [str(_python() / "bin" / "python"), "-P", str(SOURCES / "python" / "sdk.py")]
    if language == "node":
        return [str(shutil.which("node")), str(node_sdk() / "sdk.js")]
    return [str((go_sdk() if language == "go" else rust_sdk()) / "sdk")]


def _python() -> Path:
    """Return an environment that holds the Python SDK alone."""
    pins = SOURCES / "python" / "requirements.txt"

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        options = ["-q", "--require-hashes", "--only-binary", ":all:", "--no-compile"]
        _call([str(folder / "bin" / "python"), "-m", "pip", "install", *options, "-r", str(pins)])

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return made_once(cache_dir() / f"sdk-python-{version}-{digest_of(pins.read_bytes())}", install)


def node_sdk() -> Path:
    """Return a folder with the Node SDK and our driver, which finds it beside itself."""
    files = [SOURCES / "node" / name for name in ("package.json", "package-lock.json", "sdk.js")]

    def install(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        _call(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)])

    return made_once(cache_dir() / f"sdk-node-{digest_of(*(file.read_bytes() for file in files))}", install)


def go_sdk() -> Path:
    """Return a folder with our driver, compiled with the Go SDK."""
    return _compiled_go("go")


def go_remoting_command() -> list[str]:
    """Return the command of our driver of the official Go client of the remoting protocol.

    Raises:
        SdkError: It cannot be compiled.
    """
    return [str(_compiled_go("go_remoting") / "sdk")]


def _compiled_go(name: str) -> Path:
    sources = SOURCES / name
    version = subprocess.run(["go", "version"], capture_output=True, check=True, timeout=INSTALL_LIMIT).stdout

    def compile_it(folder: Path) -> None:
        _call(["go", "build", "-C", str(sources), "-mod=readonly", "-buildvcs=false", "-o", str(folder / "sdk"), "."])

    digest = digest_of(version, *(file.read_bytes() for file in sorted(sources.iterdir())))
    return made_once(cache_dir() / f"sdk-{name}-{digest}", compile_it)


def rust_sdk() -> Path:
    """Return a folder with our driver, compiled with the Rust SDK."""
    sources = SOURCES / "rust"
    version = subprocess.run(["cargo", "version"], capture_output=True, check=True, timeout=INSTALL_LIMIT).stdout
    files = [Path("Cargo.toml"), Path("src", "main.rs")]

    def compile_it(folder: Path) -> None:
        # What it depends on is compiled once for all versions of the driver.
        crate, target = folder / "crate", cache_dir() / "sdk-rust-target"
        for file in files:
            (crate / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(sources / file, crate / file)
        where = ["--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(target)]
        _call(["cargo", "build", "--quiet", *where], BUILD_LIMIT)
        shutil.copy(target / "debug" / "sdk", folder)
        shutil.rmtree(crate)

    digest = digest_of(version, *((sources / file).read_bytes() for file in files))
    return made_once(cache_dir() / f"sdk-rust-{digest}", compile_it)


def _call(command: list[str], limit: float = INSTALL_LIMIT) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise SdkError(f"{' '.join(command[:4])} ... ended with {done.returncode}:\n{done.stderr[-4000:]}")
