"""Make pytest give a test what trial gives it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """C{TestCase.mktemp} makes its folders in the current one, which must not be the project's."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("trial"))
    yield
    os.chdir(before)
