"""An S3 server on loopback: S3Proxy.

It signs, lists, takes multipart uploads and conditional writes as S3 does, and keeps each object as
one file below a folder: so a test can cut or replace an object as nobody could over the protocol.

Run it as C{python -m lab.stock.s3_server} to fetch it; C{make s3-server} does.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from lab.harness.ports import free_port
from lab.stock.jars import HERE
from lab.stock.object_server import ObjectServer

BUCKET = "archive"

REGION = "us-east-1"


class S3Server(ObjectServer):
    """One server, whose objects are in a folder below the name of their bucket."""

    title, jars, target = "S3Proxy", "s3proxy", "s3-server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "objects"
        self.key, self.secret = "local", "sealed"
        self._port = free_port()
        self.environment = {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            # S3Proxy 3.0.0 takes the trailer of a body that is sent in chunks for a fault.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
        }
        (self.folder / BUCKET).mkdir(parents=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def url(self, folder: str) -> str:
        """The URL of a folder, as pyarrow takes it."""
        place = f"endpoint_override={self.address}&scheme=http&region={REGION}"
        return f"s3://{BUCKET}/{folder}?{place}"

    @property
    def iceberg(self) -> dict[str, str]:
        """How a catalog of pyiceberg's finds it."""
        return {
            "s3.endpoint": f"http://{self.address}",
            "s3.access-key-id": self.key,
            "s3.secret-access-key": self.secret,
            "s3.region": REGION,
        }

    def arguments(self) -> list[str]:
        lines = {
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.endpoint": f"http://{self.address}",
            "s3proxy.identity": self.key,
            "s3proxy.credential": self.secret,
            # S3 takes a checksum of what is to be deleted; here it would refuse it.
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "none",
            "jclouds.credential": "none",
            "jclouds.filesystem.basedir": self.folder,
        }
        conf = self.own / "s3proxy.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return [
            f"-Dlogback.configurationFile={HERE / self.jars / 'logback.xml'}",
            "org.gaul.s3proxy.Main",
            "--properties",
            str(conf),
        ]

    def serves(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self._port)) == 0

    def renew(self) -> None:
        """Take other keys from now on: those of before have expired."""
        self.kill9()
        self.secret += "1"
        self.environment["AWS_SECRET_ACCESS_KEY"] = self.secret
        self.start()


if __name__ == "__main__":
    sys.exit(S3Server.fetch())
