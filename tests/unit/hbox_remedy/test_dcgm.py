"""What is read from `dcgmi`, of versions 3 and 4, and what no result is read from."""

import json
from typing import Any

import pytest

from hbox_remedy.core.dcgm import FAILURE_BYTES, MOST_FAILURES, Diagnosis, card_ids, diagnosis

from ...integration.remedy.remedy_world import DISCOVERY


def document(*tests: dict[str, Any], root: str = "DCGM Diagnostic", **more: Any) -> str:
    return json.dumps({root: {"test_categories": [{"category": "Hardware", "tests": list(tests)}]} | more, "metadata": {}})


def a_test(name: str, *statuses: str, **more: Any) -> dict[str, Any]:
    results = [{"entity_group": "GPU", "entity_id": number, "status": one} | more for number, one in enumerate(statuses)]
    return {"name": name, "results": results, "test_summary": {"status": statuses[0]}}


def test_cards_have_the_numbers_of_their_rows() -> None:
    found = card_ids(DISCOVERY)
    assert found == {"UUID_0": 3, "GPU-00000000-0000-0000-0000-000000000004": 4}
    assert card_ids("Error: unable to establish a connection to the specified host: localhost") == {}


def test_a_document_of_version_4_names_failed_tests_with_card_and_text() -> None:
    text = [{"error_id": 42, "warning": "Failed to copy 8 bytes"}, {"warning": "second"}]
    found = diagnosis(document(a_test("memory", "Pass", "Pass"), a_test("pcie", "Fail", warnings=text)))
    assert found == Diagnosis(2, ("pcie (GPU 0): Failed to copy 8 bytes",))


def test_a_document_of_version_3_is_read_behind_other_lines_and_past_nulls() -> None:
    tests = [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, None]
    tests.append({"name": "GPU Memory", "results": [{"gpu_ids": "1", "status": "FAIL", "warnings": "ECC error"}]})
    plain = json.dumps({"DCGM GPU Diagnostic": {"test_categories": [None, {"category": "Deployment", "tests": tests}]}})
    assert diagnosis(f"WARNING: something\n{plain}") == Diagnosis(1, ("GPU Memory (GPU 1): ECC error",))


def test_warnings_and_skipped_tests_are_no_failures() -> None:
    assert diagnosis(document(a_test("pcie", "Warn"), a_test("power", "Skip"), a_test("x", "Not Run"))) == Diagnosis(1)
    assert diagnosis(document(a_test("power", "Skip"))) == Diagnosis(0)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Error: unable to establish a connection to the specified host: localhost",
        document(a_test("memory", "Pass"))[:-20],
        "[1, 2]",
        "{}",
        '{"DCGM Diagnostic": 7}',
        '{"a":' * 100_000,
        json.dumps({"DCGM Diagnostic": {"runtime_error": "the host engine is busy"}}),
        json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"tests": [a_test("m", *["Pass"] * 5000)]}]}}),
    ],
)
def test_what_is_no_whole_document_is_no_result(output: str) -> None:
    found = diagnosis(output)
    assert found.error
    assert (found.passed, found.failures) == (0, ())


@pytest.mark.parametrize(
    "unread",
    [
        a_test("memory", "Marvellous"),
        {"name": "memory", "results": [{"entity_id": 0}]},
        {"name": "memory", "results": {"status": "Pass"}},
        {"name": "memory", "test_summary": {"status": 1}},
    ],
)
def test_an_unknown_result_beside_good_ones_is_no_result(unread: dict[str, Any]) -> None:
    found = diagnosis(document(a_test("pcie", "Pass"), unread))
    assert "memory has the unknown result" in found.error
    assert (found.passed, found.failures) == (0, ())


@pytest.mark.parametrize(
    "failed",
    [
        a_test("memory", "Failure"),
        a_test("memory", "FAIL: ECC"),
        {"name": "memory", "results": [{"status": "Pass"}], "test_summary": {"status": "Fail"}},
        {"name": "memory", "results": [{"status": "Skip"}], "test_summary": {"status": "Fail"}},
    ],
)
def test_a_failure_counts_in_any_form(failed: dict[str, Any]) -> None:
    [failure] = diagnosis(document(a_test("pcie", "Pass"), failed)).failures
    assert failure.startswith("memory")


def test_failures_are_bounded_and_without_control_characters() -> None:
    tests = [a_test(f"t{number}\x1b[2J" + "x" * 1000, "Fail") for number in range(100)]
    found = diagnosis(document(*tests))
    assert len(found.failures) == MOST_FAILURES
    assert all(len(one.encode()) <= FAILURE_BYTES and "\x1b" not in one for one in found.failures)
