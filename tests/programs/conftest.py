"""Fixtures for tests of other people's programs, which nobody changed for us: those of tests/system, and the programs."""
import importlib.util
import os
import pathlib
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(SOURCE / "tests" / "system"))

# By its path: the name `conftest` is this file's own.
spec = importlib.util.spec_from_file_location("system_fixtures", SOURCE / "tests" / "system" / "conftest.py")
system_fixtures = importlib.util.module_from_spec(spec)
sys.modules["system_fixtures"] = system_fixtures
spec.loader.exec_module(system_fixtures)

product, make_gpu, make_daemon, reap = (getattr(system_fixtures, name) for name in ("product", "make_gpu", "make_daemon", "reap"))
before_others = system_fixtures.before_others
pytest_runtest_makereport = system_fixtures.pytest_runtest_makereport


def pytest_collection_modifyitems(items):
    if os.environ.get("GPUSLICE_TEST_PROGRAMS"):
        return
    for item in items:
        if "tests/programs" in str(item.path) and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="set GPUSLICE_TEST_PROGRAMS, as ./run-tests --all does"))
