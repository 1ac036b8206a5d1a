"""Files of Kubernetes documents: what is read, and what is said of what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from hbox_cli.simulate.documents import documents_of, files_of, objects_of
from hbox_common import kube, yamltext
from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.yamltext import contents_of, scalar


def one(text: str) -> Any:
    (content,) = contents_of(text.encode())
    return content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("FALSE", False), ("3", 3), ("-7", -7), ("0.5", 0.5), ("1e3", 1000.0),
        ("on", "on"), ("no", "no"), ("2026-11-21", "2026-11-21"), ("2026-11-21T13:00:00Z", "2026-11-21T13:00:00Z"), ("12:30", "12:30"),
        ("100m", "100m"), ("2Gi", "2Gi"), ("1_000", "1_000"), ("-", "-"), (".", "."), ("9" * 65, "9" * 65),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_what_kubernetes_takes_it_for(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_a_quoted_scalar_is_a_string() -> None:
    assert one("a: '3'\nb: \"true\"\nc: |\n  7\n") == {"a": "3", "b": "true", "c": "7\n"}


def test_documents_follow_one_another_and_empty_ones_are_none() -> None:
    assert list(contents_of(b"a: 1\n---\n---\nb: [2, {c: d}]\n")) == [{"a": 1}, None, {"b": [2, {"c": "d"}]}]


def test_json_is_read_too() -> None:
    assert one('{"a": [1, "2", null]}') == {"a": [1, "2", None]}
    assert one("{a: b}") == {"a": "b"}


def test_aliases_and_merges_are_followed() -> None:
    assert one("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: *x") == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 3},
        "z": {"a": 1, "b": 2},
    }


def test_aliases_that_stand_for_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamltext, "MAX_ALIASED", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)
    ]
    with pytest.raises(InvalidRequest, match="more than 10000 values stand behind aliases"):
        one("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]", "line 1, column 8: the alias 'a' is inside the node that it names"),
        ("[" * 100_000, "line 1, column 201: nested too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
    ],
)
def test_what_is_nested_without_end_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        objects_of(contents_of(text.encode()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "line 2, column 1: "),
        ("a: 1\na: 2\n", "line 2, column 1: duplicate key 'a'"),
        ("? [a]\n: b\n", "line 1, column 3: a key has to be a word"),
        ("<<: 3\n", "line 1, column 5: only keys and values can be merged"),
        ("a: b\n---\n\tc: d\n", "line 3, column 1: "),
        ("a: \x00\n", "document 1: "),
    ],
)
def test_what_is_no_yaml_is_named_by_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as e:
        list(contents_of(text.encode()))
    assert e.value.message.startswith(said)
    assert "\n" not in e.value.message


def test_lists_are_their_items() -> None:
    found = objects_of(
        [
            {"kind": "List", "apiVersion": "v1", "items": [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}]},
            {"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "n"}}]},
        ]
    )
    assert [(d.number, d.item, d.kind) for d in found] == [(1, 0, "Pod"), (2, 0, "Node")]
    assert found[1].where == "document 2, item 1 (Node n)"


@pytest.mark.parametrize("content", ["text", 3, [1], {}, {"kind": 3}, {"apiVersion": "v1"}])
def test_what_is_no_object_is_named_by_its_number(content: object) -> None:
    with pytest.raises(InvalidRequest, match="document 2: it has no kind"):
        objects_of([None, content])


def test_items_that_are_no_objects_are_named_by_their_place() -> None:
    with pytest.raises(InvalidRequest, match="document 1, item 2: it is no object"):
        objects_of([{"kind": "List", "items": [{"kind": "Pod"}, 7]}])


def test_numbers_that_kubernetes_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="document 1: 9223372036854775808 is no number that Kubernetes can hold"):
        objects_of([{"kind": "PriorityClass", "value": 2**63}])


def read(content: dict[str, Any]) -> kube.Pod:
    (document,) = objects_of([{"kind": "Pod", "apiVersion": "v1", **content}])
    return document.read(kube.Pod, namespaced=True)


def test_keys_that_are_null_are_absent_as_the_api_server_has_it() -> None:
    pod = read({"metadata": {"name": "a", "labels": None, "creationTimestamp": None}, "spec": {"containers": None}})
    assert pod.metadata.labels == {}
    assert pod.spec.containers == ()


def test_an_object_without_uid_and_namespace_gets_them() -> None:
    assert (read({"metadata": {"name": "a"}}).metadata.namespace, read({"metadata": {"name": "a"}}).metadata.uid) == (
        "default",
        "default-a",
    )
    assert read({"metadata": {"name": "a", "namespace": "b", "uid": "c"}}).metadata.uid == "c"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "metadata.name: is missing"),
        ({"metadata": 3}, "metadata: has to be keys and values, not a whole number"),
        ({"metadata": {"name": "a", "labels": {"x": True}}}, "metadata.labels[...]: has to be a string, not true or false"),
        ({"metadata": {"name": "a"}, "spec": {"priority": "9"}}, "spec.priority: has to be a whole number, not a string"),
        ({"metadata": {"name": "a"}, "spec": {"containers": {}}}, "spec.containers: has to be a list, not keys and values"),
        ({"metadata": {"name": "a"}, "spec": []}, "spec: has to be keys and values, not a list"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named_with_what_it_has_to_be(content: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as e:
        read(content)
    assert e.value.message.endswith(said)
    assert e.value.message.startswith("document 1 (Pod")


def test_a_folder_is_its_files_in_order_and_none_twice(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "sub/c.yml", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = files_of((tmp_path / "notes.txt", tmp_path, tmp_path / "b.yaml"))
    assert [str(path.relative_to(tmp_path)) for path in found] == ["notes.txt", "a.json", "b.yaml", "sub/c.yml"]


def test_paths_that_are_not_there_or_have_nothing_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no file that ends in"):
        files_of((tmp_path,))
    with pytest.raises(NotFound, match="nobody is not there"):
        files_of((Path("nobody"),))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="the file cannot be read: Is a directory"):
        documents_of(tmp_path)
