"""Clusters with names, so that no address is typed: ``mqadmin --cluster prod SUB_COMMAND``.

``$XDG_CONFIG_HOME/rocketbroker/mqadmin.toml``, by default below ``~/.config``::

    default = "dev"          # used without -n, --cluster and NAMESRV_ADDR

    [clusters.dev]
    namesrvAddr = "127.0.0.1:9876"

    [clusters.prod]
    namesrvAddr = "10.0.0.1:9876;10.0.0.2:9876"
    brokers = ["broker-a", "broker-b"]   # doctor reports those that no name server knows
    accessKey = "admin"              # user of access control
    secretKeyFile = "prod.secret"    # or secretKey = "..."
    bindSignatures = true            # nobody who reads a request can send it again; for servers of rocketbroker
    tls = true
    caFile = "ca.pem"                # issuers of the servers' certificates; by default those of the system
    certFile = "admin.pem"           # certificate of mqadmin, and its key
    keyFile = "admin-key.pem"

Paths begin at the folder of the file. A file with a secret is used only if no other user can read it.
"""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Self

import msgspec
import typer

from rocketbroker.common.errors import ConfigError


class NamedCluster(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A cluster: its name servers, the user and secret that sign requests, the files of TLS, and names of brokers.

    Without ``tls`` the settings of the machine decide. ``brokers`` are those that should be registered.
    """

    namesrv_addr: Annotated[str, msgspec.Meta(min_length=1)]
    access_key: str = ""
    secret_key: str = ""
    secret_key_file: str = ""
    bind_signatures: bool = False
    tls: bool | None = None
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    brokers: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"NamedCluster({self.namesrv_addr!r}, access_key={self.access_key!r})"

    def fault(self) -> str:
        """Return the reason why the settings contradict each other, or an empty text."""
        if self.secret_key and self.secret_key_file:
            return "it has secretKey and secretKeyFile; give one of them"
        if bool(self.access_key) != bool(self.secret_key or self.secret_key_file):
            return "accessKey and its secret belong together; give accessKey and either secretKey or secretKeyFile"
        if not self.tls and (self.ca_file or self.cert_file or self.key_file):
            return "caFile, certFile and keyFile belong to tls = true; add it"
        if self.key_file and not self.cert_file:
            return "keyFile is the key of a certificate; add certFile"
        return ""

    def with_paths_below(self, folder: Path) -> Self:
        """Return the cluster with the names of files as paths that begin at a folder."""
        names = ("secret_key_file", "ca_file", "cert_file", "key_file")
        paths = {name: str(folder / Path(getattr(self, name)).expanduser()) for name in names if getattr(self, name)}
        return msgspec.structs.replace(self, **paths)


class Clusters(msgspec.Struct, forbid_unknown_fields=True):
    """The clusters of a file by name, and the name of the default."""

    default: str | None = None
    clusters: dict[str, NamedCluster] = {}

    def named(self, name: str, source: Path) -> NamedCluster:
        """Return a cluster.

        Raises:
            typer.BadParameter: there is none of this name; the text lists those there are.
        """
        if name in self.clusters:
            return self.clusters[name]
        known = f"it has {', '.join(sorted(self.clusters))}" if self.clusters else "it names no cluster"
        raise typer.BadParameter(
            f"cluster {name!r} is not in {source}: {known}; add [clusters.{name}] with namesrvAddr"
        )


class Chosen(NamedTuple):
    """The options before the sub-command: the name of a cluster, the file to read, and TLS."""

    cluster: str | None = None
    config: Path | None = None
    tls: bool = False
    ca_file: Path | None = None


CHOSEN: Final[ContextVar[Chosen]] = ContextVar("chosen", default=Chosen())  # noqa: B039 - a tuple does not change
#: The brokers that the file of clusters names for the cluster of this command.
EXPECTED_BROKERS: Final[ContextVar[tuple[str, ...]]] = ContextVar("expected_brokers", default=())
#: The name servers of ``-n``, as typed; None without it.
GIVEN_SERVERS: Final[ContextVar[str | None]] = ContextVar("given_servers", default=None)


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file that is read without ``--config``, whether or not it exists."""
    base = environment.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return folder / "rocketbroker" / "mqadmin.toml"


def read_clusters(path: Path) -> Clusters:
    """Return the clusters of a file.

    Raises:
        typer.BadParameter: the file cannot be read, is not TOML, has other contents than clusters, or has a secret that
            other users can read.
    """
    import tomllib

    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), Clusters)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOML, UTF-8 or the wrong contents
        raise typer.BadParameter(
            f'{path}: {error}; it should have tables such as [clusters.prod] with namesrvAddr = "HOST:PORT"'
        ) from error
    for name, cluster in found.clusters.items():
        if fault := cluster.fault():
            raise typer.BadParameter(f"{path}, [clusters.{name}]: {fault}")
    if any(cluster.secret_key for cluster in found.clusters.values()):
        _check_private(path)
    found.clusters = {name: each.with_paths_below(path.parent) for name, each in found.clusters.items()}
    if found.default is not None:
        found.named(found.default, path)
    return found


def _check_private(path: Path) -> None:
    from rocketbroker.common.private_files import check_private

    try:
        check_private(path)
    except ConfigError as error:
        raise typer.BadParameter(f"{error}; it has a secretKey") from error


def chosen_cluster(option: str | None, chosen: Chosen, environment: Mapping[str, str] = os.environ) -> NamedCluster:
    """Return the cluster by ``-n``, the named cluster, NAMESRV_ADDR or the default of the file, in this order.

    The default of a file that ``--config`` names comes before NAMESRV_ADDR.

    Raises:
        typer.BadParameter: there are none, ``-n`` contradicts ``--cluster`` or ``--config``, or the file of clusters
            is wrong.
    """
    if option is not None and chosen.cluster is not None:
        raise typer.BadParameter(
            f"-n {option} and --cluster {chosen.cluster} both name a cluster; give one of them", param_hint="-n"
        )
    if option is not None and chosen.config is not None:
        raise typer.BadParameter(f"-n {option} leaves nothing to read in --config {chosen.config}; give one of them")
    if option is not None and option.strip():
        return NamedCluster(option.strip())
    path = chosen.config or config_file(environment)
    if chosen.cluster is not None:
        if not path.exists():
            raise typer.BadParameter(
                f'{path} does not exist; write it with [clusters.{chosen.cluster}] and namesrvAddr = "HOST:PORT"'
            )
        return read_clusters(path).named(chosen.cluster, path)
    if chosen.config is not None:
        clusters = read_clusters(path)
        if clusters.default is None:
            names = ", ".join(sorted(clusters.clusters)) or "none"
            raise typer.BadParameter(f"{path} has no default cluster; use --cluster NAME, of: {names}")
        return clusters.clusters[clusters.default]
    if (from_environment := environment.get("NAMESRV_ADDR", "").strip()) and option is None:
        return NamedCluster(from_environment)
    if option is None and path.exists():
        clusters = read_clusters(path)
        if clusters.default is not None:
            return clusters.clusters[clusters.default]
    raise typer.BadParameter(
        f"no name server given; use -n HOST:PORT, set NAMESRV_ADDR, or name clusters in {path} and use --cluster NAME"
    )


def complete_cluster(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of clusters that begin so, for the completion of a shell."""
    try:
        names = read_clusters(ctx.params.get("config") or config_file()).clusters
    except typer.BadParameter:
        return []  # a shell shows no errors while someone types
    return [name for name in names if name.startswith(incomplete)]
