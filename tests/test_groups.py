"""`make test` divides the tests by groups; see conftest.py."""

import os

import pytest


def test_tests_of_a_file_are_a_group(request: pytest.FixtureRequest) -> None:
    """Otherwise both processes make every fixture, and the tests take half as long again."""
    [marker] = request.node.iter_markers("xdist_group")
    assert marker.args == ("test_groups",)
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@test_groups"), "pytest-xdist does not see the groups"
