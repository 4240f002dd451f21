"""
An S3 server on loopback: S3Proxy, fetched by Maven once into the ignored folder of stock peers.

It signs, lists, takes multipart uploads and conditional writes as S3 does, and keeps each object as
one file below a folder: so a test can cut or replace an object as nobody could over the protocol.

Run it as C{python -m lab.stock.s3_server} to fetch it; C{make s3-server} does.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from lab.harness.ports import free_port
from lab.stock.jars import BRIEF, HERE, KEPT, Missing, say

JARS = KEPT / "s3proxy"

START_MOST = 60.0
"""Seconds until it has to listen."""

BUCKET = "archive"

REGION = "us-east-1"


def resolve() -> None:
    """
    Fetch its jars, unless they are there.

    @raise Missing: If there is no Maven, or it fails.
    """
    done = JARS / ".complete"
    if done.exists():
        return
    if shutil.which("mvn") is None:
        raise Missing("no mvn on the PATH; Apache Maven is needed to fetch S3Proxy")
    say(f"fetching S3Proxy into {JARS}")
    shutil.rmtree(JARS, ignore_errors=True)
    command = ["mvn", "--batch-mode", "--quiet", f"-DoutputDirectory={JARS}"]
    try:
        subprocess.run(
            [*command, "dependency:copy-dependencies"],
            check=True,
            timeout=900,
            cwd=HERE / "s3proxy",
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Missing(f"mvn failed: {error}") from error
    done.touch()


class S3Server:
    """
    One server.

    @ivar folder: Where its objects are, below the name of their bucket.
    @ivar key: The account's name.
    @ivar secret: What requests are signed with.
    """

    def __init__(self, folder: Path) -> None:
        """
        @param folder: Its own, for objects and for its settings.
        @raise Missing: If it was not fetched, or there is no Java.
        """
        if shutil.which("java") is None:
            raise Missing("no java on the PATH; S3Proxy needs Java 17 or later")
        if not (JARS / ".complete").exists():
            raise Missing("S3Proxy was not fetched; run make s3-server")
        self.folder = folder / "objects"
        self.key, self.secret = "local", "sealed"
        self._conf = folder / "s3proxy.conf"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / BUCKET).mkdir(parents=True)

    @property
    def address(self) -> str:
        """
        C{host:port}.
        """
        return f"127.0.0.1:{self._port}"

    def url(self, folder: str) -> str:
        """
        The URL of a folder, as pyarrow takes it.
        """
        place = f"endpoint_override={self.address}&scheme=http&region={REGION}"
        return f"s3://{BUCKET}/{folder}?{place}"

    @property
    def environment(self) -> dict[str, str]:
        """
        How clients find it and its keys.
        """
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            # S3Proxy 3.0.0 takes the trailer of a body that is sent in chunks for a fault.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
        }

    def start(self) -> None:
        """
        Start it, and wait until it listens.

        @raise AssertionError: If it does not in time.
        """
        lines = {
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.endpoint": f"http://{self.address}",
            "s3proxy.identity": self.key,
            "s3proxy.credential": self.secret,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "none",
            "jclouds.credential": "none",
            "jclouds.filesystem.basedir": self.folder,
        }
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        main = ["org.gaul.s3proxy.Main", "--properties", str(self._conf)]
        self._process = subprocess.Popen(
            ["java", *BRIEF, "-cp", f"{JARS}/*", *main],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + START_MOST
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > limit:
                self.stop()
                raise AssertionError("S3Proxy does not listen")
            time.sleep(0.05)

    def _listens(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self._port)) == 0

    def renew(self) -> None:
        """
        Take other keys from now on: those of before have expired.
        """
        self.stop()
        self.secret += "1"
        self.start()

    def stop(self) -> None:
        """
        End it; what it has stays.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main() -> int:
    """
    Fetch it.
    """
    try:
        resolve()
    except Missing as error:
        say(f"S3Proxy: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
