"""The stock peers' jars: resolved by Maven once, by C{make interop}, kept in an ignored folder with
our Java helper compiled against them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lab.harness.nodes import ROOT

VERSIONS = ("4.9.7", "5.3.3")

HERE = Path(__file__).resolve().parent
KEPT = ROOT / ".interop"

#: What the JDK must show to RocketMQ, which unmaps files by itself.
OPENS = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")


#: A JVM that is up soon and stays small: what tests want. It is never fast.
BRIEF: tuple[str, ...] = (
    "-Xmx256m",
    "-Xms32m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
)

#: So, and its servers speak clear text alone: with TLS each makes a key and a certificate when it
#: starts, which costs more than all else of a start.
CLEAR = (*BRIEF, "-Dtls.server.mode=disabled")


class Missing(Exception):
    """There are no peers to test with; its text says why."""


def say(text: str) -> None:
    """Print a line about the progress."""
    sys.stderr.write(text + "\n")


def library(version: str) -> Path:
    """The folder of a version's jars."""
    return KEPT / f"lib-{version}"


#: What is run by itself, each from a folder of its own: by its name, Maven's coordinates.
ALONE = {
    "proxy-5.3.3": "rocketmq-proxy:5.3.3",
    "client-java-5.2.0": "rocketmq-client-java:5.2.0",
}


def alone(name: str, main: str, home: Path, *arguments: str) -> list[str]:
    """The command line of a JVM that runs one of L{ALONE}, if it was resolved."""
    if not (library(name) / ".complete").exists():
        raise Missing(f"{name} is not resolved; run make interop")
    return _started(("-Xmx512m", *BRIEF[2:]), home, f"{library(name)}/*", main, *arguments)


def _started(jvm: tuple[str, ...], home: Path, path: str, *more: str) -> list[str]:
    return [
        "java",
        *jvm,
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={HERE / 'home'}",
        "-cp",
        f"{HERE / 'home' / 'conf'}:{path}",
        *more,
    ]


def classes(version: str) -> Path:
    """The folder of our helper, compiled for a version."""
    return KEPT / f"classes-{version}"


def sources() -> list[Path]:
    """The Java sources of this folder."""
    return sorted((HERE / "java").glob("*.java"))


def java(
    version: str, main: str, home: Path, *arguments: str, jvm: tuple[str, ...] = CLEAR
) -> list[str]:
    """The command line of a JVM that runs RocketMQ's or our classes, if L{resolve} has been run.

    @param home: What it takes for its user's home; its logs and leftovers go there.
    """
    if shutil.which("java") is None:
        raise Missing("no java on the PATH; a JDK 8 or later is needed")
    stamp = classes(version) / "Tool.class"
    if not stamp.exists():
        raise Missing(f"RocketMQ {version} is not resolved; run make interop")
    if any(path.stat().st_mtime > stamp.stat().st_mtime for path in sources()):
        raise Missing("lab/stock/java has changed since it was compiled; run make interop")
    return _started(jvm, home, f"{classes(version)}:{library(version)}/*", main, *arguments)


def resolve(version: str) -> None:
    """Fetch a version's jars, unless they are there, and compile our helper, or L{Missing}."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} on the PATH; a JDK is needed")
    _fetch_rocketmq(version, "pom.xml", f"-Drocketmq.version={version}")
    stamp = classes(version) / "Tool.class"
    newest = max(path.stat().st_mtime for path in sources())
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        shutil.rmtree(classes(version), ignore_errors=True)
        classes(version).mkdir(parents=True)
        path = f"{library(version)}/*"
        where = str(classes(version))
        run(HERE, "javac", "-nowarn", "-d", where, "-cp", path, *map(str, sources()))


def resolve_alone() -> None:
    """Fetch the jars of L{ALONE}, unless they are there; L{Missing} without Maven."""
    for name, coordinates in ALONE.items():
        artifact, version = coordinates.split(":")
        _fetch_rocketmq(name, "alone.xml", f"-Dartifact={artifact}", f"-DartifactVersion={version}")


def _fetch_rocketmq(name: str, pom: str, *properties: str) -> None:
    fetch(f"Apache RocketMQ {name}", library(name), pom, *properties)


def fetch(title: str, place: Path, pom: str, *properties: str) -> None:
    """Have Maven copy what a file of this folder names, unless that was done; or L{Missing}."""
    done = place / ".complete"
    if done.exists():
        return
    if shutil.which("mvn") is None:
        raise Missing(f"no mvn on the PATH; Apache Maven is needed to fetch {title}")
    say(f"fetching {title} into {place}")
    shutil.rmtree(place, ignore_errors=True)
    told = ("--batch-mode", "--quiet", "--file", pom, f"-DoutputDirectory={place}", *properties)
    run(HERE, "mvn", *told, "dependency:copy-dependencies")
    done.touch()


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder, or L{Missing}."""
    try:
        subprocess.run(command, check=True, timeout=900, cwd=folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise Missing(f"{command[0]} failed: {error}") from error


def main() -> int:
    """Resolve the jars of all versions with Maven."""
    try:
        for version in VERSIONS:
            resolve(version)
        resolve_alone()
    except Missing as error:
        say(f"RocketMQ: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
