"""Searches of the Promela models: what passed is not searched again, and nothing else is taken for it."""
import shutil
import subprocess

import pytest

from conftest import SOURCE

SEARCH = SOURCE / "tests" / "model" / "search-model"
MODEL = "byte x;\ninit { x = START; x++; assert(x == %d) }\n"


@pytest.fixture
def search(tmp_path):
    if not shutil.which("spin"):
        pytest.skip("spin is not installed")
    model = tmp_path / "model.pml"

    def run(end, expected="holds", start=1):
        """Search a model whose only assertion holds if it begins at end - 1: (whether it passed, whether it was known)."""
        model.write_text(MODEL % end)
        result = subprocess.run([SEARCH, model, expected, "safety", f"-DSTART={start}"], text=True, capture_output=True,
                                env={"PATH": "/usr/bin:/bin", "GPUSLICE_MODEL_VERDICTS": tmp_path / "verdicts"}, timeout=60)
        return result.returncode == 0, "searched before" in result.stdout
    return run


def test_a_search_that_passed_is_not_made_again(search):
    assert search(2) == (True, False)
    assert search(2) == (True, True)


def test_a_search_that_failed_is_made_again(search):
    assert search(3) == search(3) == (False, False)


def test_a_verdict_is_for_one_model_one_scenario_and_one_expectation(search):
    assert search(2) == (True, False)
    assert search(3) == (False, False)
    assert search(2, start=2) == (False, False)
    assert search(2, expected="fails") == (False, False)
    assert search(3, expected="fails") == (True, False)
    assert search(2) == (True, True)
