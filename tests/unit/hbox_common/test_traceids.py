"""Ids of traces follow from the ids of jobs."""

from hbox_common.model import JobId
from hbox_common.model.traceids import parse_traceparent, step_of, trace_id_of, traceparent_of

A, B = traceparent_of(JobId("9e6a184b-3ac6-44e1-99d6-d266bee1cbda")), traceparent_of(JobId("b"))


def test_a_jobs_context_is_the_same_in_every_process_and_release() -> None:
    """Traces of jobs that live across an upgrade depend on it."""
    assert A == "00-b83533c9128008ca6c2faa1f30b90950-92e8745434daf7b1-01"
    assert trace_id_of(A) != trace_id_of(B)


def test_a_step_has_an_id_of_its_own_in_its_jobs_trace() -> None:
    first, second, other = step_of(A, "run", "1"), step_of(A, "run", "2"), step_of(A, "start", "1")
    assert {trace_id_of(one) for one in (first, second, other)} == {trace_id_of(A)}
    assert len({first, second, other, A}) == 4
    assert step_of(A, "run", "1") == first
    assert parse_traceparent(first) is not None


def test_a_step_keeps_the_samplers_decision() -> None:
    assert step_of(f"{A[:-2]}00", "run", "1").endswith("-00")


def test_malformed_contexts_have_no_ids() -> None:
    for text in ("", "00-1-2-01", A.upper(), f"{A}-x", f"00-{'0' * 32}-{'1' * 16}-01"):
        assert parse_traceparent(text) is None
        assert not trace_id_of(text)
        assert step_of(text, "run", "1") == text
