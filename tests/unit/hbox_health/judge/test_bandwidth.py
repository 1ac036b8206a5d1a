"""Runs of nccl-tests and pair tests: wrong, slow, unfinished, and what is no measurement."""

from hbox_common.health.nccl import Pair, parse_nccl
from hbox_health.core.judge.bandwidth import judge_pairs, judge_run
from hbox_health.core.judge.finding import Action, Severity
from hbox_health.data import shipped_rules

H100 = shipped_rules().profile("H100")
HEAD = "# nThread 1 nGpus {gpus} minBytes 8 maxBytes 8589934592 step: 2(factor)\n"
END = "# Out of bounds values : {wrong} {word}\n# Avg bus bandwidth    : {average}\n"


def run(
    busbw: float, *, gpus: int = 8, wrong: int = 0, size: int = 8 << 30, ended: bool = True, operation: str = "sum"
) -> tuple[Severity, Action]:
    row = f"  {size}  {size // 4}  float  {operation}  -1  410.2  20.45  {busbw}  {wrong}  409.8  20.47  {busbw}  0\n"
    end = (
        END.format(wrong=wrong, word="FAILED" if wrong else "OK", average=busbw)
        if ended
        else "h1: Test NCCL failure common.cu:1005\n"
    )
    finding = judge_run(parse_nccl(HEAD.format(gpus=gpus) + row + end), H100)
    return finding.severity, finding.action


def test_wrong_results_are_worse_than_slow() -> None:
    assert run(460, wrong=1) == (Severity.FATAL_NODE, Action.CORDON)


def test_a_run_below_nine_tenths_of_its_box_is_repeated() -> None:
    assert run(0.9 * 460) == (Severity.NONE, Action.NONE)
    assert run(0.9 * 460 - 0.1) == (Severity.SUSPECT, Action.RETEST)


def test_small_messages_and_other_collectives_are_not_compared() -> None:
    assert run(3, size=1 << 20) == (Severity.NONE, Action.NONE)
    assert run(3, operation="none") == (Severity.NONE, Action.NONE)


def test_a_run_that_did_not_end_states_nothing_about_speed() -> None:
    assert run(460, ended=False) == (Severity.SUSPECT, Action.RETEST)


def test_one_rank_is_no_measurement() -> None:
    run_of_one = parse_nccl(HEAD.format(gpus=1) + END.format(wrong=0, word="OK", average=0))
    finding = judge_run(run_of_one, H100)
    assert (finding.severity, finding.why) == (Severity.NONE, "One rank has no bus bandwidth: no measurement.")


def test_a_node_is_judged_by_its_best_pair() -> None:
    nodes = [f"n{n}" for n in range(10)]
    speed = {node: 390.0 - n / 10 for n, node in enumerate(nodes)} | {"n3": 240.0, "n7": 362.0}
    pairs = [
        Pair(1, one, other, min(speed[one], speed[other]), ok=True) for i, one in enumerate(nodes) for other in nodes[i + 1 :]
    ]
    pairs.append(Pair(2, "n3", "n5", 240.0, ok=True))
    found = judge_pairs([*pairs, Pair(2, "n0", "n1", 0.0, ok=False), Pair(2, "gone", "n0", 0.0, ok=False)])
    assert (found.slow, found.borderline, found.well, found.unmeasured) == (("n3",), ("n7",), 8, ("gone",))
