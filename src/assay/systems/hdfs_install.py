"""Where the programs of HDFS lie: Hadoop's JARs, the native client, and an archive of loaded classes that halves the start
of its virtual machines."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from assay.lab.host import Host, search_path
from assay.systems.requirements import Requirement, program, programs_directory

HADOOP_VERSION = "3.5.0"
CLIENT_VERSION = "0.14.7"
POM = Path(__file__).with_name("hdfs-pom.xml")
_ARCHIVE_SECONDS = 120.0
_DEFAULTS = "hdfs-default.xml"  # options of HDFS with their defaults, in the JAR of the services
_CONSTANTS = "org/apache/hadoop/hdfs/DFSConfigKeys.class"  # and those that the former forgets
_NAME = re.compile(rb"dfs\.[a-z0-9]+[a-z0-9.-]*")


def directory() -> Path:
    """Where all of it lies."""
    return programs_directory() / "hdfs"


def jars() -> list[Path]:
    """Hadoop's JARs and those that they need, in the order of the class path; empty when they are not there."""
    return sorted((directory() / "lib").glob("*.jar"))


def _server_jar() -> Path | None:
    jar = directory() / "lib" / f"hadoop-hdfs-{HADOOP_VERSION}.jar"
    return jar if jar.is_file() else None


def client_packages() -> Path | None:
    """The directory from which hdfs-native is imported; it is built for the stable ABI, so any Python 3 can."""
    found = sorted((directory() / "venv" / "lib").glob("python3*/site-packages/hdfs_native"))
    return found[0].parent if found else None


def requirements() -> tuple[Requirement, ...]:
    """Java, Hadoop and the client, each with the command that gets it."""
    place = directory()
    copy = f"mvn -q -B -f {POM} dependency:copy-dependencies -DoutputDirectory={place / 'lib'}"
    install = f"{place / 'venv/bin/pip'} install hdfs-native=={CLIENT_VERSION}"
    return (
        program("java", "openjdk-17-jre-headless", "-version"),
        Requirement(
            f"Hadoop {HADOOP_VERSION} in {place / 'lib'}",
            _server_jar,
            f"apt-get install -y --no-install-recommends maven && {copy}",
        ),
        Requirement(
            f"hdfs-native in {place / 'venv'}",
            client_packages,
            f"{sys.executable} -m venv {place / 'venv'} && {install}",
        ),
    )


@cache
def _names_in(jar: Path) -> frozenset[str]:
    with zipfile.ZipFile(jar) as archive:
        tree = ElementTree.fromstring(archive.read(_DEFAULTS))
        constants = _NAME.findall(archive.read(_CONSTANTS))
    documented = {str(p.findtext("name")).strip() for p in tree.iter("property")}
    return frozenset(documented | {name.decode() for name in constants})


def option_names() -> frozenset[str]:
    """All options that this version of HDFS knows; empty when it is not installed. Hadoop itself ignores a name that
    it does not know."""
    jar = _server_jar()
    return _names_in(jar) if jar is not None else frozenset()


# --- the class archive ------------------------------------------------------------------------------------------------


def class_archive() -> Path:
    """The archive for this Java and these JARs, whether it is there or not. Java ignores one that does not fit."""
    java = Path(os.path.realpath(shutil.which("java", path=search_path()) or "/usr/bin/java"))
    named = [*jars(), java]
    said = [f"{p} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in named if p.exists()]
    return directory() / f"classes-{hashlib.sha256('|'.join(said).encode()).hexdigest()[:12]}.jsa"


def make_class_archive(host: Host, lists: Iterable[Path]) -> bool:
    """Make it from lists of classes that services have loaded (-XX:DumpLoadedClassList), about 10 s of one core, once for
    each installation. Whether it was made: without one, services start all the same, later."""
    archive = class_archive()
    draft, together = archive.with_suffix(f".{os.getpid()}"), archive.with_suffix(f".{os.getpid()}.lst")
    try:
        lines = dict.fromkeys(line for file in lists for line in file.read_text().splitlines())
        together.write_text("\n".join([*lines, ""]))
        argv = ["java", "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedClassListFile={together}"]
        argv += [f"-XX:SharedArchiveFile={draft}", "-cp", ":".join(map(str, jars()))]
        if not host.run(argv, timeout_seconds=_ARCHIVE_SECONDS).ok:
            return False
        draft.rename(archive)
    except OSError:  # the directory is another user's, for example
        return False
    finally:
        together.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)
    return True
