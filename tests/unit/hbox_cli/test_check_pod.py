"""`hbox check pod FILE`, and the catalogue that `hbox sizes --settle` prints for it."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hbox_cli.check.pod import judged
from hbox_cli.commands.check import command
from hbox_cli.exits import Faulty
from hbox_common.errors import InvalidRequest
from hbox_common.model import Card
from hbox_common.model.devices.sizes import DEFAULT, Becomes, Size, Way, as_content, choose, parse_sizes, settle, settled

JOB = """
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers: [{name: main, resources: {limits: {nvidia.com/gpumem: 3000, nvidia.com/priority: 1}}}]
"""


def checked(*words: str, text: str = "") -> tuple[str, BaseException | None]:
    done = CliRunner().invoke(command, ["pod", *words], input=text, standalone_mode=False)
    return done.output, done.exception


def test_what_would_be_written_and_what_is_refused_without(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    said, error = checked(str(path))
    assert error is None
    assert said.splitlines() == [
        "job/train: mutated",
        "  writes  spec.schedulerName: hbox",
        "  writes  spec.containers.0.resources.limits: nvidia.com/gpumem: 3000, nvidia.com/priority: 1, nvidia.com/gpu: 1",
        "  writes  spec.containers.0.env: CUDA_TASK_PRIORITY=1",
        "  without the endpoint refused: container main: nvidia.com/gpumem given without nvidia.com/gpu (add nvidia.com/gpu: 1)",
    ]


def test_what_hbox_refuses_all_the_same_is_a_fault() -> None:
    said, error = checked("-", "-o", "json", text=JOB.replace("3000", "'much'"))
    assert isinstance(error, Faulty)
    [one] = json.loads(said)["pods"]
    assert "nvidia.com/gpumem" in one["problem"]
    assert one["warnings"]


@pytest.mark.parametrize("text", ["kind: ConfigMap\n", "[]", "kind: Pod\nspec: {containers: [7]}\n"])
def test_what_holds_no_pod_is_told(text: str) -> None:
    _, error = checked("-", text=text)
    assert isinstance(error, InvalidRequest)
    assert "pod" in str(error)


def test_sizes_are_resolved_by_a_settled_catalogue(tmp_path: Path) -> None:
    cards = [Card(i, f"GPU-{i}", "A100", 40_960, 10, kind="NVIDIA") for i in range(8)]
    chosen = [settle(size, choice) for size in DEFAULT if (choice := choose(size, cards)) is not None]
    path = tmp_path / "sizes.yaml"
    path.write_text(yaml.safe_dump(as_content(chosen)))
    again = parse_sizes(path.read_bytes())
    assert list(again) == chosen
    for size in again:
        assert settled(size) is not None
        found = choose(size, cards)
        assert found is not None
        assert (found.kind, found.way) == (size.becomes.kind, size.becomes.way) if size.becomes else False
        assert choose(size, []) is None, "what is settled needs cards all the same"
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"sizes.hbox.io/8GB-compute": 1}}}]}}
    found_pod = judged("pod", pod, again)
    assert not found_pod.problem
    assert found_pod.cards is not None
    assert "is a standard size" in found_pod.alone


@pytest.mark.parametrize(
    ("becomes", "says"),
    [
        ("NVIDIA", "a mapping with kind, way"),
        ({"kind": "NVIDIA"}, "way is"),
        ({"kind": "Nvidia", "way": "share"}, "kind is 'Nvidia'"),
        ({"kind": "NVIDIA", "way": "whole"}, "one of its ways: share"),
        ({"kind": "Biren", "way": "share"}, "Biren has no parts of cards"),
        ({"kind": "NVIDIA", "way": "share", "annotations": {"hbox.io/claim": "x"}}, "annotations are some that devices"),
        ({"kind": "NVIDIA", "way": "share", "more": 1}, "a mapping with kind, way"),
    ],
)
def test_what_a_size_cannot_become_is_refused(becomes: object, says: str) -> None:
    entry = {"name": "s", "ways": ["share"], "memoryMiB": 1024, "becomes": becomes}
    with pytest.raises(InvalidRequest) as told:
        parse_sizes(json.dumps([entry]))
    assert says in str(told.value)
    assert "size s" in str(told.value)


def test_several_units_are_several_cards() -> None:
    found = settled(Size("s", "", (Way.SHARE,), 1024, 10, cards=3, becomes=Becomes("NVIDIA", Way.SHARE)))
    assert found is not None
    assert found.resources == {"nvidia.com/gpu": 3, "nvidia.com/gpumem": 1024, "nvidia.com/gpucores": 10}
