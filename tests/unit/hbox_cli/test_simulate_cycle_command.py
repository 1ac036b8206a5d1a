"""`hbox simulate cycle` as its users meet it: what it prints, in which form, and how it ends."""

import csv
import json
from pathlib import Path
from typing import Any

import click
import pytest

from hbox_cli.__main__ import cli
from hbox_common.errors import Bug, HBoxError, InvalidRequest, NotFound

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, nvidia.com/gpu: 2}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
---
"""

POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
"""


def gang(name: str, pods: int, cards: int) -> str:
    group = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {{name: {name}}}\nspec: {{minMember: {pods}, queue: q}}\n---\n"
    return group + "".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{i}, annotations: {{scheduling.k8s.io/group-name: {name}}}}}\n"
        f"spec: {{schedulerName: hbox, containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: {cards}}}}}}}]}}\n---\n"
        for i in range(pods)
    )


def config(policy: str) -> str:
    return (
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\ndata:\n  volcano-scheduler.conf: "
        + json.dumps(policy)
        + "\n---\n"
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two cards: a gang that takes both, and one that needs four."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER + config(POLICY) + gang("a", 2, 1) + gang("b", 4, 1))
    return path


def run(*words: str | Path) -> None:
    cli.main(["simulate", "cycle", *map(str, words)], prog_name="hbox", standalone_mode=False)


def rows(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    run("-o", "ndjson", *words)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_table_says_what_binds_where_and_who_waits_and_why(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    run(cluster)
    assert capsys.readouterr().out.splitlines()[:7] == [
        f"{cluster}: 2 bound, 4 waiting",
        "  bound",
        "    default/a-0  n1  n1-0",
        "    default/a-1  n1  n1-1",
        "  waiting",
        "    default/b-0, default/b-1, default/b-2, default/b-3",
        "      0/1 nodes are available: 1 CardsInUse",
    ]


def test_a_line_of_json_has_all_keys_of_the_contract(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    (row,) = rows(capsys, cluster)
    assert list(row) == ["file", "error", "bindings", "evictions", "nominations", "podGroups", "pending"]
    assert (row["file"], row["error"]) == (str(cluster), None)
    assert row["bindings"] == [
        {"pod": "default/a-0", "node": "n1", "devices": ["n1-0"]},
        {"pod": "default/a-1", "node": "n1", "devices": ["n1-1"]},
    ]
    assert row["podGroups"] == {"default/a": {"phase": "Inqueue"}, "default/b": {"phase": "Inqueue"}}
    assert set(row["pending"]) == {f"default/b-{i}" for i in range(4)}
    assert row["pending"]["default/b-0"]["reasons"] == {"CardsInUse": 1}


def test_explain_adds_filters_and_scores_of_every_node_before_the_first_decision(
    capsys: pytest.CaptureFixture[str], cluster: Path
) -> None:
    (row,) = rows(capsys, "--explain", cluster)
    assert row["filters"]["default/b-0"] == {"n1": None}
    assert row["scores"]["default/b-0"]["total"] == {"n1": 0.0}
    assert row["domainScores"] == {}
    run("--explain", cluster)
    assert "    n1    fits    0" in capsys.readouterr().out.splitlines()


def test_scores_of_hypernodes_are_named_by_their_gang(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hypernode = "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: s0}\n"
    hypernode += "spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: n1}}}]}\n---\n"
    policy = POLICY + "  - name: network-topology-aware\n"
    wish = "networkTopology: {mode: hard, highestTierAllowed: 1}, "
    group = (
        gang("a", 1, 1).replace("name: a}", "name: a, uid: u-1}", 1).replace("spec: {minMember", f"spec: {{{wish}minMember", 1)
    )
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER + hypernode + config(policy) + group)
    (row,) = rows(capsys, "--explain", path)
    assert row["error"] is None
    assert set(row["domainScores"]) == {"default/a", ""}
    assert "s0" in row["domainScores"]["default/a"]
    assert row["podGroups"] == {"default/a": {"phase": "Inqueue"}}
    run("--explain", path)
    assert "  HyperNodes for default/a" in capsys.readouterr().out.splitlines()


def test_json_and_yaml_are_one_document(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    run("-o", "json", cluster, cluster.parent)
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], len(found["items"])) == ("SimulationList", 1)
    run("-o", "yaml", cluster)
    assert capsys.readouterr().out.startswith("apiVersion: hbox.io/v1\nkind: SimulationList\n")


def test_names_are_those_of_pods_that_are_bound(capsys: pytest.CaptureFixture[str], cluster: Path) -> None:
    run("-o", "name", cluster)
    assert capsys.readouterr().out == "pod/default/a-0\npod/default/a-1\n"


def test_csv_has_a_row_for_each_decision_about_a_pod_and_for_each_invalid_file(
    capsys: pytest.CaptureFixture[str], cluster: Path
) -> None:
    broken = cluster.with_name("zz.yaml")
    broken.write_text("kind: [")
    with pytest.raises(InvalidRequest):
        run("-o", "csv", cluster, broken)
    shown = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["FILE"], row["POD"], row["OUTCOME"], row["NODE"], row["DEVICES"]) for row in shown[:2]] == [
        (str(cluster), "default/a-0", "bound", "n1", "n1-0"),
        (str(cluster), "default/a-1", "bound", "n1", "n1-1"),
    ]
    assert {(row["OUTCOME"], row["REASON"].partition(" available")[0]) for row in shown[2:6]} == {("waiting", "0/1 nodes are")}
    assert [(row["FILE"], row["OUTCOME"]) for row in shown[6:]] == [(str(broken), "error")]
    assert "did not find expected node content" in shown[6]["REASON"]


def test_a_policy_of_the_command_counts_before_the_files(
    capsys: pytest.CaptureFixture[str], cluster: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.conf"
    policy.write_text('actions: "backfill"')
    (row,) = rows(capsys, "--policy", policy, cluster)
    assert row["bindings"] == []


def test_a_file_without_a_policy_is_judged_by_our_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER + gang("a", 2, 1))
    (row,) = rows(capsys, path)
    assert len(row["bindings"]) == 2


def test_pods_of_another_scheduler_are_placed_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER + gang("a", 1, 1).replace("hbox", "volcano"))
    assert rows(capsys, path)[0]["bindings"] == []
    assert len(rows(capsys, "--scheduler", "hbox", "--scheduler", "volcano", path)[0]["bindings"]) == 1


def test_a_pod_that_can_never_be_placed_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER + gang("a", 1, 1).split("---\n", 1)[1])
    (row,) = rows(capsys, path)
    assert row["pending"]["default/a-0"]["message"].startswith("PodGroup default/a not found")


def test_warnings_about_nodes_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER.replace("name: n1", "name: n1, annotations: {hami.io/node-nvidia-register: what}"))
    run(path)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{path}: nothing to do"
    assert out[1].startswith("  warning: document 1 (Node n1): annotation hami.io/node-nvidia-register")


def test_a_wrong_file_ends_in_an_error_that_names_it(cluster: Path) -> None:
    cluster.write_text("kind: Node\napiVersion: v1\nmetadata: {name: 7}")
    with pytest.raises(InvalidRequest) as e:
        run(cluster)
    assert e.value.message == f"{cluster}: document 1 (Node 7): metadata.name: has to be a string, not a whole number"
    assert e.value.hint == "what looks like a number or a truth, and is none, needs quotes"


@pytest.mark.parametrize("form", ["ndjson", "json", "table"])
def test_a_wrong_file_does_not_stop_the_others(capsys: pytest.CaptureFixture[str], cluster: Path, form: str) -> None:
    for name in ("a.yaml", "z.yaml"):
        (cluster.parent / name).write_text("[")
    with pytest.raises(InvalidRequest, match=r"2 of 3 files could not be simulated; the first: .*a\.yaml: line 2, column 1"):
        run("-o", form, cluster.parent)
    out = capsys.readouterr().out
    match form:
        case "ndjson":
            found = [json.loads(line) for line in out.splitlines()]
            assert [Path(row["file"]).name for row in found] == ["a.yaml", "cluster.yaml", "z.yaml"]
            assert [row["error"] is None for row in found] == [False, True, False]
            assert found[0]["bindings"] == []
        case "json":
            assert len(json.loads(out)["items"]) == 3
        case _:
            assert out.startswith(f"{cluster}: 2 bound, 4 waiting")


def test_a_policy_that_is_wrong_is_named_with_its_place(cluster: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.conf"
    policy.write_text('actions: "allocat"')
    with pytest.raises(InvalidRequest, match=r"policy\.conf: line 1, column 10: unknown action 'allocat'"):
        run("--policy", policy, cluster)
    with pytest.raises(InvalidRequest, match=r"the policy .*gone: cannot be read: No such file"):
        run("--policy", tmp_path / "gone", cluster)
    cluster.write_text(CLUSTER + config('actions: "allocat"'))
    with pytest.raises(
        InvalidRequest, match=r"cluster\.yaml: volcano-scheduler\.conf: line 1, column 10: unknown action 'allocat'"
    ):
        run(cluster)


def test_a_fault_of_ours_in_one_file_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("hbox_cli.simulate.running.simulate", broken)
    with pytest.raises(Bug, match="KeyError: 'x'"):
        run("-o", "ndjson", cluster)
    assert json.loads(capsys.readouterr().out)["error"].startswith("KeyError: 'x'")
    with pytest.raises(KeyError):
        run("--debug", cluster)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), click.UsageError),
        (("--cycles", "0", "x"), click.UsageError),
        (("--now", "soon", "x"), click.UsageError),
        (("gone",), NotFound),
    ],
)
def test_a_wrong_command_line_is_refused(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        run(*words)


def test_errors_of_the_command_are_ours(tmp_path: Path) -> None:
    with pytest.raises(HBoxError, match="has no file that ends in"):
        run(tmp_path)
