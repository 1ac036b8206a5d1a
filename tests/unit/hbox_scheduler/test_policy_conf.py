"""volcano-scheduler.conf: read as Volcano reads it, and what is wrong with one is said with line and key."""

from dataclasses import is_dataclass

import pytest

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.framework.hooks import GangOrder, Preemptable
from hbox_scheduler.core.placement.policycheck import policy_warnings
from hbox_scheduler.core.policy.default import DEFAULT_CONF, PolicyName, default_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of

from ...policies import volcano
from .small_world import SmallWorld

NAMES = list(PLUGINS)

VOLCANO = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
    arguments:
      binpack.weight: 10
configurations:
- name: allocate
  arguments: {predicateErrorCacheEnable: true}
"""


def test_volcanos_own_default_is_understood() -> None:
    conf = parse_conf(VOLCANO, plugins=NAMES)
    assert conf.actions == ("enqueue", "allocate", "backfill")
    assert [plugin.name for plugin in conf.tiers[0]] == ["priority", "gang", "conformance"]
    assert Preemptable in conf.tiers[0][1].off
    assert GangOrder not in conf.tiers[0][1].off
    assert conf.arguments["allocate"] == {"predicateErrorCacheEnable": True}
    assert [plugin.name for tier in plugins_of(conf) for plugin in tier] == [plugin.name for plugin in conf.plugins]


def test_our_own_default_is_right() -> None:
    conf = parse_conf(DEFAULT_CONF, plugins=NAMES)
    assert plugins_of(conf)
    assert "pdb" in [plugin.name for plugin in conf.plugins], "simulate counts budgets, as the running service does (ADR 28)"


@pytest.mark.parametrize("flag", ["enableJobOrder", "enabledJobOrder"])
def test_both_spellings_of_a_flag_mean_the_same(flag: str) -> None:
    conf = parse_conf(f'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n    {flag}: false\n', plugins=NAMES)
    assert conf.plugins[0].off == {GangOrder}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('actions: "allocate, alocate"', "line 1, column 10: unknown action 'alocate' .*did you mean allocate"),
        ("actions: [allocate]", "line 1, column 10: actions must be one string"),
        ('actions: ""', "actions names no action"),
        ("tiers:\n- plugins:\n  - name: gangs", "line 3, column 11: unknown plugin 'gangs' .*did you mean gang"),
        ("tiers:\n- plugins:\n  - nam: gang", "line 3, column 5: a plugin without a name"),
        (
            "tiers:\n- plugins:\n  - name: gang\n    enableJobOrder: maybe",
            "line 4, column 21: enableJobOrder must be true or false",
        ),
        ("tiers:\n- plugins:\n  - name: gang\n  - name: gang", "plugin 'gang' is listed twice"),
        ("teirs: []", "line 1, column 1: unknown key 'teirs'"),
        ("configurations:\n- name: alocate", "unknown action 'alocate'"),
        ("actions: [", "line 1"),
        ("", "the policy is empty"),
        ("- a", "the policy must be keys and values"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_conf(text, plugins=NAMES)


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("{name: binpack, arguments: {binpack.weigth: 1}}", "no argument 'binpack.weigth' .*did you mean binpack.weight"),
        ("{name: binpack, arguments: {binpack.weight: much}}", "binpack.weight: 'much' is not a number"),
        ("{name: nodeorder, arguments: {leastrequested.weight: -1}}", "at least 0"),
        ("{name: predicates, arguments: {predicate.NodeAffinityEnable: 3}}", "3 is not true or false"),
        ("{name: deviceshare, arguments: {deviceshare.SchedulePolicy: best}}", "SchedulePolicy: 'best' .*binpack, spread"),
        ("{name: resource-strategy-fit, arguments: {resources: {cpu: {type: Most}}}}", "resources.cpu"),
        (
            "{name: resource-strategy-fit, arguments: {resources: {cpu: {type: MostAllocated, wieght: 1}}}}",
            "resources.cpu has no argument 'wieght' .*did you mean weight",
        ),
        ("{name: resource-strategy-fit, arguments: {sra: {enable: 1}}}", "sra, argument enable: 1 is not true or false"),
        (
            "{name: resource-strategy-fit, arguments: {sra: {resources: a, resourceWeight: {a: x}}}}",
            "resourceWeight, argument a: 'x'",
        ),
        (
            "{name: resource-strategy-fit, arguments: {sra: {resources: a, resourceWeight: {b: 1}}}}",
            "resourceWeight has no argument 'b'",
        ),
        (
            "{name: resource-strategy-fit, arguments: {proportional: {resources: a, resourceProportion: {a.cpu: -1}}}}",
            "a.cpu: -1 .*at least 0",
        ),
        ("{name: gang, arguments: {minMember: 1}}", "plugin gang has no argument 'minMember'"),
        ("{name: priority, arguments: {a: 1}}", "plugin priority has no argument 'a'"),
        ("{name: conformance, arguments: {a: 1}}", "plugin conformance has no argument 'a'"),
        ("{name: binpack, arguments: {binpack.weight: true}}", "True is not a number"),
        ("{name: binpack, arguments: {binpack.weight: .nan}}", "nan is not a number"),
        ("{name: binpack, arguments: {binpack.weight: .inf}}", "inf is not a number"),
        ("{name: capacity, arguments: {ancestorReclaimLevel: .inf}}", "inf is not a number"),
        ("{name: capacity, arguments: {ancestorReclaimLevel: 1.5}}", "1.5 is not a whole number"),
    ],
)
def test_a_wrong_argument_is_named_with_its_plugin(plugin: str, said: str) -> None:
    conf = parse_conf(f"tiers:\n- plugins: [{plugin}]", plugins=NAMES)
    with pytest.raises(InvalidRequest, match=said):
        plugins_of(conf)


@pytest.mark.parametrize(
    ("action", "arguments", "said"),
    [
        (
            "allocate",
            "{enablePredicateErrorCache: 5}",
            "action allocate, argument enablePredicateErrorCache: 5 is not true or false",
        ),
        ("preempt", "{enableTopologyAwarePreemption: 5}", "action preempt, argument enableTopologyAwarePreemption: 5"),
        ("preempt", "{minCandidateNodesPercentage: 101}", "at most 100"),
        ("preempt", "{maxCandidateNodesAbsolute: 1.5}", "1.5 is not a whole number"),
        ("preempt", "{topologyAwarePreemptWorkerNum: 0}", "at least 1"),
        ("gangpreempt", "{maxDomains: 0}", "action gangpreempt, argument maxDomains: 0 is not a number of at least 1"),
        ("gangreclaim", "{allowWholeBundel: true}", "no argument 'allowWholeBundel' .*did you mean allowWholeBundle"),
        ("consolidate", "{maxMovedPods: -2}", "at least -1"),
    ],
)
def test_a_wrong_argument_of_an_action_is_named_with_it(action: str, arguments: str, said: str) -> None:
    text = f'actions: "{action}"\nconfigurations:\n- {{name: {action}, arguments: {arguments}}}\n'
    with pytest.raises(InvalidRequest, match=said):
        SmallWorld(1).decide(text)


@pytest.mark.parametrize("action", ["enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle"])
def test_what_volcanos_actions_do_not_read_is_told_and_passed_over(action: str) -> None:
    text = f'actions: "{action}"\nconfigurations:\n- {{name: {action}, arguments: {{oldKey: 1, }}}}\n'
    [warning] = SmallWorld(1).decide(text).warnings
    assert warning.startswith(f"action {action} has no argument 'oldKey'")


def test_two_plugins_that_both_say_what_queues_share_are_told_of() -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins: [{name: drf, enableHierarchy: true}, {name: proportion}]\n'
    assert "drf with enableHierarchy and proportion" in SmallWorld(1).decide(text).warnings[0]
    assert not SmallWorld(1).decide(text.replace("true", "false")).warnings


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (
            "{name: capacity, arguments: {capacity.DynamicResourceAllocationEnable: true}}",
            "line 3: plugin capacity, argument capacity.DynamicResourceAllocationEnable: no service publishes ResourceClaims",
        ),
        (
            "{name: extender, arguments: {extender.urlPrefix: 'http://x', extender.jobReadyVerb: ready}}",
            "line 3: plugin extender, argument extender.jobReadyVerb: HBox only sends requests about nodes, and none during a cycle",
        ),
    ],
)
def test_what_volcano_has_and_hbox_has_not_is_refused_with_the_reason(plugin: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plugins_of(parse_conf(f"tiers:\n- plugins:\n  - {plugin}\n", plugins=NAMES))
    assert caught.value.message == said


@pytest.mark.parametrize(
    "plugin",
    [
        "{name: capacity, arguments: {capacity.DynamicResourceAllocationEnable: false}}",
        "{name: predicates, arguments: {predicate.GPUNumberEnable: true, volumebinding.bindTimeoutSeconds: 600}}",
        "{name: leastWaste, arguments: {least-waste.weight: 5}}",
    ],
)
def test_what_is_off_or_bounds_what_nobody_waits_for_is_accepted(plugin: str) -> None:
    (one,) = plugins_of(parse_conf(f"tiers:\n- plugins:\n  - {plugin}\n", plugins=NAMES))[0]
    assert one.name in NAMES


@pytest.mark.parametrize(
    ("plugin", "key", "hint"),
    [
        ("{name: drf, disableTaskOrder: true}", "disableTaskOrder", "write enableTaskOrder: false"),
        ("{name: gang, enableJobOrders: true}", "enableJobOrders", "did you mean enableJobOrder?"),
        ("{name: overcommit, overcommit-factor: 1.2}", "overcommit-factor", "write it below `arguments:`"),
        ("{name: sla, sla-waiting-time: 1h}", "sla-waiting-time", "write it below `arguments:`"),
    ],
)
def test_unknown_key_is_ignored_with_a_correction(plugin: str, key: str, hint: str) -> None:
    conf = parse_conf(f"tiers:\n- plugins:\n  - {plugin}\n  - {{name: predicates}}\n", plugins=NAMES)
    (error,) = conf.ignored
    assert error.hint == hint
    assert f"line 3, column {5 + plugin.index(key)}: unknown key '{key}' in plugin" in error.message
    assert [one.name for one in conf.plugins][1:] == ["predicates"], "the rest of the policy applies"
    assert not any(one.arguments for one in conf.plugins)
    assert policy_warnings(conf)[0] == str(error)
    with pytest.raises(InvalidRequest, match=f"unknown key '{key}'"):
        conf.refuse_ignored()


@pytest.mark.parametrize("action", ["elect", "gangPreempt"])
def test_an_action_that_volcano_has_no_more_is_said_to_be_refused_there_too(action: str) -> None:
    with pytest.raises(InvalidRequest, match=f"unknown action '{action}', which Volcano 1.16 refuses too"):
        parse_conf(f'actions: "{action}"', plugins=NAMES)


def test_numa_aware_is_followed() -> None:
    assert (
        policy_warnings(parse_conf("tiers:\n- plugins: [{name: numa-aware, arguments: {weight: 10}}]\n", plugins=NAMES)) == []
    )


def test_strategies_of_which_volcano_has_no_code_are_told_and_passed_over() -> None:
    strategies = "[{name: offlineOnly}, {name: lowNodeUtilization, params: {thresholds: {cpu: 20}}}]"
    conf = parse_conf(f"tiers:\n- plugins: [{{name: rescheduling, arguments: {{strategies: {strategies}}}}}]\n", plugins=NAMES)
    assert policy_warnings(conf) == [
        "plugin rescheduling, strategy offlineOnly has no effect: as in Volcano, there is lowNodeUtilization alone"
    ]


@pytest.mark.parametrize("conf", [default_conf(), default_conf(PolicyName.FGD), volcano()], ids=["own", "fgd", "volcano"])
def test_every_session_has_plugins_of_its_own(conf: Conf) -> None:
    """As if each had been made of its arguments: nothing that can change is in two of them."""
    first, second = ([plugin for tier in plugins_of(conf) for plugin in tier] for _ in range(2))
    made = [PLUGINS[one.name](one) for one in conf.plugins]
    for one, other, anew in zip(first, second, made, strict=True):
        assert one is not other
        assert vars(one).keys() == vars(anew).keys()
        for name, value in vars(one).items():
            assert type(value) is type(vars(anew)[name])
            changes = isinstance(value, dict | list | set) or (hasattr(value, "__dict__") and vars(value))
            frozen = is_dataclass(value) and getattr(value, "__dataclass_params__").frozen  # noqa: B009
            assert value is not vars(other)[name] or not changes or frozen, (one.name, name)
