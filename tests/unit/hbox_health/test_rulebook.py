"""Tables and policies of an operator's folder, and files that cannot be used."""

from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.events import PolicyValue
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.happenings import Tick
from hbox_health.core.judge.policyfile import parse_policies
from hbox_health.core.judge.rules import BadRules
from hbox_health.data import shipped_rules
from hbox_health.rulebook import RuleBook

from .incident_world import World, lost, port_down

BASE = Policies(validated_s=30)
PROFILES = "profiles: {generic: {}, H100: {models: [H100], cards: 4}}"


def values(book: RuleBook) -> dict[str, PolicyValue]:
    return {one.name: one for one in book.values}


def test_values_of_the_file_count_before_settings_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text("mute_s: 60\nwaits: {port: 5, xid-63: 7}\nlimits: {share: 0.5}\n")
    book = RuleBook(tmp_path, BASE)
    assert (book.policies.mute_s, book.policies.waits["port"], book.policies.limits.share) == (60, 5, 0.5)
    assert (book.policies.validated_s, book.policies.waits["unit"], book.policies.limits.least) == (30, 60, 2)
    shown = values(book)
    assert {name: shown[name].source for name in ("mute_s", "waits.port", "limits.share", "validated_s", "resets")} == {
        "mute_s": "policies.yaml", "waits.port": "policies.yaml", "limits.share": "policies.yaml",
        "validated_s": "setting", "resets": "default",
    }  # fmt: skip
    assert shown["waits.port"].value == "5"


def test_a_table_of_the_folder_replaces_the_shipped_one_and_the_version_names_it(tmp_path: Path) -> None:
    book = RuleBook(tmp_path, BASE)
    assert (book.rules, book.policies.version) == (shipped_rules(), "1")
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    assert book.read()
    assert book.rules.profile("H100").cards == 4
    assert (book.tables["profiles.yaml"], book.tables["codes.yaml"]) == (str(tmp_path / "profiles.yaml"), "shipped")
    first = book.policies.version
    assert first.startswith("1+")
    assert not book.read()
    (tmp_path / "profiles.yaml").write_text(PROFILES.replace("4", "8"))
    assert book.read()
    assert book.policies.version not in ("1", first)
    (tmp_path / "profiles.yaml").unlink()
    assert book.read()
    assert (book.rules, book.policies.version) == (shipped_rules(), "1")


@pytest.mark.parametrize("name", ["policies.yaml", "profiles.yaml"])
def test_a_file_that_cannot_be_used_changes_nothing_and_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "policies.yaml").write_text("mute_s: 60")
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    book = RuleBook(tmp_path, BASE)
    before = book.rules, book.policies
    good = (tmp_path / name).read_text()
    other = next(one for one in ("policies.yaml", "profiles.yaml") if one != name)
    (tmp_path / other).write_text((tmp_path / other).read_text().replace("60", "90").replace("4", "8"))
    (tmp_path / name).write_text("a: [")
    assert book.read()
    assert (book.rules, book.policies) == before
    assert "YAML" in book.fault
    assert not book.read(), "the same fault is reported once"
    (tmp_path / name).write_text(good)
    assert book.read()
    assert book.fault == ""
    assert (book.rules, book.policies) != before


def test_a_file_that_is_put_right_again_without_another_change_ends_the_fault(tmp_path: Path) -> None:
    book = RuleBook(tmp_path, BASE)
    (tmp_path / "policies.yaml").write_bytes(b"\xff")
    assert book.read()
    assert "policies.yaml" in book.fault
    (tmp_path / "policies.yaml").unlink()
    assert book.read()
    assert (book.fault, book.policies) == ("", BASE)


def test_shipped_rules_are_in_force_if_the_folder_is_bad_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "codes.yaml").write_text("xid: {}")
    book = RuleBook(tmp_path, BASE)
    assert (book.rules, book.policies, bool(book.fault)) == (shipped_rules(), replace(BASE, unread=book.fault), True)
    (tmp_path / "codes.yaml").unlink()
    assert book.read()
    assert (book.policies, book.fault) == (BASE, "")
    (tmp_path / "codes.yaml").write_text("xid: {}")
    assert book.read()
    assert book.policies == BASE, "rules that were read stay in force"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mute_z: 1", "mute_z is not one of"),
        ("verbs: [reset]", "verbs is not one of"),
        ("cordon: false", "cordon is not one of"),
        ("mute_s: soon", "mute_s: soon is no number"),
        ("mute_s: true", "mute_s: True is no number"),
        ("mute_s: .inf", "mute_s: inf is no number"),
        ("mute_s: -1", "at least 0"),
        ("flaps: 0", "flaps: 0 is no number of at least 1"),
        ("resets: 1.5", "no whole number"),
        ("silent_share: 2", "no share"),
        ("limits: {share: 1.1}", "no share"),
        ("limits: {most: 3}", "limits: most is not one of"),
        ("limits: 3", "limits: a mapping"),
        ("waits: {prot: 3}", "waits: prot is no kind"),
        ("waits: {port: x}", "waits: port: x is no number"),
        ("- 1", "policies: a mapping"),
        ("a: [", "invalid YAML"),
    ],
)
def test_a_policy_that_means_nothing_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(BadRules, match=why):
        parse_policies(text, BASE)


def test_an_empty_file_changes_nothing() -> None:
    assert parse_policies("", BASE) == BASE


def test_other_policies_apply_to_open_incidents_at_once() -> None:
    world = World()
    world.nodes(1)
    world.state("port", port_down())
    world.after(241)
    world.state("port")
    world.after(100)
    assert world.verdict().rails_off == ("rail:mlx5_0",)
    world.engine.use(parse_policies("clean: {port: 60}", world.policies))
    world.step(Tick())
    assert world.verdict().rails_off == ()


def test_other_limits_make_room_for_nodes_that_wait() -> None:
    world = World()
    world.nodes(10)
    for index in range(4):
        world.record(lost(), node=f"n{index}")
    assert len(world.cordoned) == 2
    world.engine.use(parse_policies("limits: {least: 4}", world.policies))
    world.step(Tick())
    assert len(world.cordoned) == 4


def test_an_unusable_gate_job_leaves_the_former_one_in_force_and_is_named(tmp_path: Path) -> None:
    job = "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}"
    book = RuleBook(tmp_path, BASE)
    assert (book.policies.job, book.tables["gate-job.yaml"]) == ("", "none")
    (tmp_path / "gate-job.yaml").write_text(job)
    assert book.read()
    former = book.policies.job
    assert '"image":"i"' in former
    (tmp_path / "gate-job.yaml").write_text(job.replace("batch/v1", "v1"))
    assert book.read()
    assert (book.policies.job, book.fault) == (former, "gate-job.yaml: a Job of batch/v1 is expected")
    (tmp_path / "gate-job.yaml").unlink()
    assert book.read()
    assert (book.policies.job, book.fault) == ("", "")
