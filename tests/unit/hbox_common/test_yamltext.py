"""Text that nests, names itself, swells or slips ends no reader. In a process of its own with little memory: a parser that calls itself takes that along."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import MAX_SETTINGS_BYTES, content_of, contents_of, read_file, settings_of

READ = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import settings_of
try:
    print(repr(settings_of(Path(sys.argv[1])))[:100])
except InvalidRequest as e:
    print("refused:", e)
"""

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
BOMBS = {
    "flow": ("a: " + "[" * 100_000 + "]" * 100_000, "line 1, column 203: nested too deep"),
    "block": ("- " * 100_000 + "x", "nested too deep"),
    "indented": ("".join(" " * i + "a:\n" for i in range(1500)), "line 201, column 201: nested too deep"),
    "keys": ("? " * 100_000 + "x", "a key has to be a word"),
    "json": ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
    "itself": ("a: &a [*a]", "line 1, column 8: the alias 'a' is inside the node that it names"),
    "itself merged": ("a: &a {<<: *a}", "the alias 'a' is inside the node that it names"),
    "nobody": ("a: *b", "line 1, column 4: found undefined alias 'b'"),
    "laughs": (LAUGHS, "more than 1000000 values stand behind aliases"),
    "merges": ("a: &a {" + ",".join(f"k{i}: 1" for i in range(10_000)) + "}\nb: {<<: [" + ",".join(["*a"] * 20_000) + "]}", "more than 1000000 values"),
    "twice": ("a: 1\nb: 2\na: 3", "line 3, column 1: duplicate key 'a'"),
    "large": ("#" * (MAX_SETTINGS_BYTES + 1), "is larger than 4 MiB"),
    "half a character": ('a: "\\ud800"', "line 1, column 7: found invalid Unicode character escape code"),
    "two": ("a: 1\n---\nb: 1", "holds 2 documents"),
    "control": ("a: \x1b[31m", "control characters are not allowed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_goes_beyond_is_refused_with_its_place_and_ends_no_process(tmp_path: Path, name: str) -> None:
    text, said = BOMBS[name]
    file = tmp_path / "file.yaml"
    file.write_text(text)
    done = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith(f"refused: {file}")
    assert said in done.stdout


@pytest.mark.parametrize("digits", [64, 65, 100_000])
def test_numbers_without_end_are_words_or_numbers(digits: int) -> None:
    assert str(content_of("a: " + "9" * digits)["a"]) == "9" * digits
    assert content_of(b'{"a": ' + b"9" * digits + b"}") is not None


def test_aliases_share_and_later_keys_win_over_merged_ones() -> None:
    found = content_of("x: &x {a: 1, b: [1, 2]}\ny: {<<: *x, a: 2}\nz: {<<: [{a: 7}, *x]}\nk: &k word\nl: [*k, *x]")
    assert found == {
        "x": {"a": 1, "b": [1, 2]}, "y": {"a": 2, "b": [1, 2]}, "z": {"a": 7, "b": [1, 2]}, "k": "word", "l": ["word", {"a": 1, "b": [1, 2]}],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "# nothing", "---\n", "--- \n...\n", "null", "a", "[]", "- a\n- {b: c}\n", "a: |\n  text\n", "'1'"]
)
def test_json_and_yaml_say_the_same(text: str) -> None:
    expected: dict[str, object] = {
        "": None,
        "# nothing": None,
        "---\n": None,
        "--- \n...\n": None,
        "null": None,
        "a": "a",
        "[]": [],
        "'1'": "1",
    }
    value = content_of(text)
    assert value == expected.get(text, value)
    assert list(contents_of(json.dumps({"a": value}).encode())) == [{"a": value}]


def test_a_file_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="larger than"):
        read_file(Path("/dev/zero"))
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        settings_of(tmp_path / "none")
    with pytest.raises(InvalidRequest, match="cannot be read: Is a directory"):
        settings_of(tmp_path)
