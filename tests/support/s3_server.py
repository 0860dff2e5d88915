"""A server of the S3 protocol on this machine, and stores put on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moto.server import ThreadedMotoServer
from pyarrow import fs

ACCESS_KEY, SECRET_KEY = "test-key", "test-secret"
REGION = "eu-central-1"


@dataclass(frozen=True)
class S3Server:
    """A server and its address."""

    endpoint: str

    def address(self, path: str, *, with_credentials: bool = False) -> str:
        """Return the address of ``path``, a bucket and a key."""
        user = f"{ACCESS_KEY}:{SECRET_KEY}@" if with_credentials else ""
        return f"s3://{user}{path}?endpoint_override={self.endpoint}&scheme=http&region={REGION}"

    def client(self) -> fs.S3FileSystem:
        """Return a file system that may write."""
        return fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.endpoint,
            scheme="http",
            region=REGION,
            allow_bucket_creation=True,
        )

    def put(self, store: Path, path: str) -> None:
        """Copy all files of a store below ``path``, a bucket and a key."""
        client = self.client()
        client.create_dir(path.partition("/")[0])
        for file in store.rglob("*"):
            if file.is_file():
                with client.open_output_stream(f"{path}/{file.relative_to(store)}") as stream:
                    stream.write(file.read_bytes())


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an empty server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"{host}:{port}")
    finally:
        server.stop()
