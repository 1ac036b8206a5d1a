"""For each rule what makes it fire, or be so much, and what does not: series as promtool's tests have them, at one-minute steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Series = dict[str, str]


class Case(NamedTuple):
    """`at`: minutes after the start. `labels`: of the alert that fires, beside its name and severity."""

    fires: Series
    quiet: Series
    at: int = 15
    quiet_too: Series = {}


class Sum(NamedTuple):
    """What a recording rule says at that minute."""

    series: Series
    value: float
    labels: str = ""
    at: int = 10


def _bucket(name: str, *, fast: int, all_: int, le: str, steps: int = 400) -> Series:
    """A histogram whose rates are these a minute."""
    return {
        f'{name}_bucket{{le="{le}"}}': f"0+{fast}x{steps}",
        f'{name}_bucket{{le="+Inf"}}': f"0+{all_}x{steps}",
        f"{name}_count": f"0+{all_}x{steps}",
    }


_SERVICES = ("topology-collector", "job-controller", "scheduler-core", "quota-ledger", "binder", "health-monitor")


def _builds(*services: str, instance: str = "a") -> Series:
    return {f'hbox_build_info{{component="{s}",instance="{s}-{instance}",job="hbox"}}': "1x400" for s in services}


def _longest_turn(**clocks: str) -> Series:
    """Of the binder's loop, by clock."""
    return {
        f'hbox_loop_longest_turn_seconds{{clock="{clock}",instance="binder-a",job="hbox"}}': values
        for clock, values in clocks.items()
    }


def _certificate(*, days: int, of: int, name: str = "client") -> Series:
    """One that was made for so many days, of which so many are left at the start, when the clock stands at 0."""
    labels = f'{{certificate="{name}",server="",instance="a"}}'
    return {
        f"hbox_certificate_expiration_timestamp_seconds{labels}": f"{days * 86400}x60",
        f"hbox_certificate_not_before_timestamp_seconds{labels}": f"{(days - of) * 86400}x60",
    }


def _queue(name: str = "train", *, oldest_s: int, used: int, deserved: int | None = None) -> Series:
    """A queue with a pending job; without `deserved` its rules name none."""
    cards = {"used": used} | ({"deserved": deserved} if deserved is not None else {})
    return {f'hbox_queue_oldest_pending_seconds{{queue="{name}"}}': f"{oldest_s}x60"} | {
        f'hbox_queue_cards{{queue="{name}",state="{state}"}}': f"{amount}x60" for state, amount in cards.items()
    }


def _cards(**states: str) -> Series:
    """Cards of pool `lab` by state, as values of a series; two processes report them while the lease changes hands."""
    return {
        f'hbox_cards{{pool="lab",model="H100",state="{state}",instance="{instance}"}}': values
        for state, values in states.items()
        for instance in "ab"
    }


def _held(*, active: float, since: int = 0) -> Series:
    """Two cards that pods of a queue hold from minute `since`, half of the second one; a third one is free."""
    series: Series = {}
    for number, part in enumerate((1, 0.5)):
        card = f'node="n1",card="{number}",uuid="GPU-{number}"'
        gap = f"_x{since} " if since else ""
        series |= {
            f'hbox_card_queue_ratio{{{card},queue="train"}}': f"{gap}{part}x120",
            f'hbox_card_shares_allocated{{{card},kind="NVIDIA",model="H100"}}': f"{gap}1x120",
        }
    series['hbox_card_shares_allocated{node="n1",card="2",uuid="GPU-2",kind="NVIDIA",model="H100"}'] = "0x120"
    return series | {f'DCGM_FI_PROF_SM_ACTIVE{{UUID="GPU-{n}",gpu="{n}",Hostname="h"}}': f"{active}x120" for n in range(3)}


def _dcgm(_uuid: str = "GPU-1", _model: str = "NVIDIA H100 80GB HBM3", /, **fields: str) -> Series:
    """Fields of a card as dcgm-exporter shows them, without DCGM_FI_; of a node whose exporter is newer than 4.8.1."""
    labels = f'{{UUID="{_uuid}",gpu="1",modelName="{_model}",hostname="n1"}}'
    return {f"DCGM_FI_{name}{labels}": values for name, values in fields.items()}


def _inventory(*uuids: str, node: str = "n1") -> Series:
    return {f'hbox_card_shares{{node="{node}",card="{i}",uuid="{uuid}",kind="NVIDIA"}}': "1x60" for i, uuid in enumerate(uuids)}


#: DCGM has no value.
_BLANK, _BLANK_TIME = "2147483632x60", "9223372036854775792x60"
_A100, _L20, _B200 = "NVIDIA A100-SXM4-80GB", "NVIDIA L20", "NVIDIA B200"

_SLOW = _bucket("hbox_binder_decided_seconds", fast=50, all_=100, le="2.5")
#: Six bindings, all of them slow: after a pause of the binder, where little is submitted.
_FEW = {f"hbox_binder_decided_seconds_{one}": "0x80 6x320" for one in ("count", 'bucket{le="+Inf"}')} | {
    'hbox_binder_decided_seconds_bucket{le="2.5"}': "0x400"
}
_QUICK = _bucket("hbox_binder_decided_seconds", fast=999, all_=1000, le="2.5")
_STARTED = 'process_start_time_seconds{instance="binder-a",job="hbox"}'
_TURN = 'hbox_scheduler_oldest_job_seconds{state="active"}'
_IDLE = {"hbox_scheduler_placements_total": "7x60", "hbox_scheduler_verdicts_total": "3x60"}

ALERTS: Mapping[str, Case] = {
    "HBoxServiceMissing": Case(_builds(*_SERVICES[1:]), _builds(*_SERVICES)),
    "HBoxServiceNotReady": Case(
        {'hbox_condition{condition="bus",instance="a"}': "0x60"}, {'hbox_condition{condition="bus",instance="a"}': "0 0 1x60"}
    ),
    "HBoxServiceRestarts": Case(
        {**_builds("binder"), _STARTED: "1 1 1 2 2 3 3 4x60"}, {**_builds("binder"), _STARTED: "1 1 1 2 2 2 3x60"}, at=10
    ),
    "HBoxNoLeader": Case(
        {'hbox_leading{component="binder",instance="a"}': "0x60", 'hbox_leading{component="binder",instance="b"}': "0x60"},
        {'hbox_leading{component="binder",instance="a"}': "0x60", 'hbox_leading{component="binder",instance="b"}': "1x60"},
    ),
    "HBoxStandbyMissing": Case(
        {
            **_builds("scheduler-core"),
            'hbox_build_info{component="scheduler-core",instance="b"}': "1x99 stale",
            'hbox_leading{component="scheduler-core-lab",instance="c"}': "1x400",
            'hbox_leading{component="scheduler-core-main",instance="d"}': "1x400",
        },
        # A rollout has three for a moment; a service that never had two has lost none; one that does not stand by has no leader.
        {
            **_builds("binder", "health-monitor"),
            'hbox_build_info{component="binder",instance="b"}': "_x90 1x4 stale",
            'hbox_build_info{component="health-monitor",instance="b"}': "1x99 stale",
            'hbox_leading{component="binder"}': "1x400",
        },
        at=115,
    ),
    "HBoxLeaderFlapping": Case(
        {'hbox_leading{component="binder",instance="a"}': "0 1 0 1 0 1 0 1x60"},
        {'hbox_leading{component="binder",instance="a"}': "0 1 0 1x60"},
    ),
    "HBoxLoopBlocked": Case(
        {**_builds("binder"), **_longest_turn(processor="0.15x60", wall="0.3x60")},
        # A long turn now and then, as at a start; and a crowded machine.
        {**_builds("binder"), **_longest_turn(processor="0.05x5 0.4x2 0.05x60", wall="0.5x60")},
        quiet_too={**_builds("binder"), **_longest_turn(processor="0.1x60", wall="1x60")},
    ),
    "HBoxShardWithoutScheduler": Case(
        {'hbox_jobs_shard_silent_seconds{shard="lab"}': "70x60", 'hbox_jobs_waiting_by_shard{shard="lab"}': "1x60"},
        # One with nothing to do, and one whose scheduler is there.
        {
            'hbox_jobs_shard_silent_seconds{shard="lab"}': "70x60",
            'hbox_jobs_waiting_by_shard{shard="lab"}': "0x60",
            'hbox_jobs_shard_silent_seconds{shard="main"}': "9x60",
            'hbox_jobs_waiting_by_shard{shard="main"}': "5x60",
        },
    ),
    "HBoxLedgerFrozen": Case({"hbox_ledger_frozen": "1x60"}, {"hbox_ledger_frozen": "1 0x60"}),
    "HBoxPodsUnseen": Case({"hbox_ledger_plans_held": "1x60"}, {"hbox_ledger_plans_held": "0x60"}),
    "HBoxLedgerDrift": Case({"hbox_ledger_drift_total": "0 0 0 1x60"}, {"hbox_ledger_drift_total": "4x60"}),
    "HBoxNodesOverbooked": Case({"hbox_ledger_overbooked_nodes": "1x60"}, {"hbox_ledger_overbooked_nodes": "1x10 0x50"}, at=20),
    "HBoxClaimsSetAside": Case({"hbox_ledger_claims_set_aside": "3x60"}, {"hbox_ledger_claims_set_aside": "0x60"}),
    "HBoxCommitSlow": Case(
        _bucket("hbox_ledger_commit_seconds", fast=0, all_=100, le="0.25")
        | {'hbox_ledger_commit_seconds_bucket{le="1.0"}': "0+100x400"},
        _bucket("hbox_ledger_commit_seconds", fast=100, all_=100, le="0.25"),
        at=20,
    ),
    "HBoxOutboxGrows": Case({"hbox_ledger_outbox_messages": "1500x60"}, {"hbox_ledger_outbox_messages": "1500x3 20x60"}),
    "HBoxEvictionsPaused": Case({"hbox_ledger_evictions_paused": "1x60"}, {"hbox_ledger_evictions_paused": "0x60"}),
    "HBoxEvictionsUnanswered": Case(
        {'hbox_ledger_oldest_open_decision_seconds{decision="evict"}': "0+60x60"},
        {'hbox_ledger_oldest_open_decision_seconds{decision="evict"}': "90x60"},
    ),
    "HBoxTimeToBindBurn": Case(_SLOW, _QUICK, at=90, quiet_too=_FEW),
    "HBoxBindErrors": Case(
        {'hbox_binder_binds_total{outcome="rejected"}': "0+2x60", 'hbox_binder_binds_total{outcome="bound"}': "0+98x60"},
        {'hbox_binder_binds_total{outcome="gone"}': "0+2x60", 'hbox_binder_binds_total{outcome="bound"}': "0+98x60"},
        at=25,
    ),
    "HBoxBindingsUnanswered": Case(
        {'hbox_ledger_oldest_open_decision_seconds{decision="bind"}': "0+60x60"},
        {'hbox_ledger_oldest_open_decision_seconds{decision="bind"}': "3x60"},
    ),
    "HBoxNoDecisions": Case(
        {_TURN: "0+60x60", **_IDLE}, {_TURN: "0+60x60", **_IDLE, "hbox_scheduler_verdicts_total": "0+1x60"}
    ),
    "HBoxPendingOld": Case(
        {'hbox_scheduler_oldest_job_seconds{state="unschedulable"}': "90000x60"},
        {'hbox_scheduler_oldest_job_seconds{state="unschedulable"}': "8000x60"},
    ),
    "HBoxQueueStarved": Case(
        _queue(oldest_s=7200, used=3, deserved=8),
        _queue(oldest_s=7200, used=9, deserved=8),
        at=45,
        quiet_too=_queue(oldest_s=1800, used=3, deserved=8)
        | _queue("free", oldest_s=7200, used=3)
        | _queue("wrong", oldest_s=7200, used=3, deserved=8)
        | {'hbox_queue_waiting_jobs{queue="wrong",code="NodeTooSmall",outcome="change"}': "2x60"},
    ),
    "HBoxJobNeverFits": Case(
        {'hbox_queue_waiting_jobs{queue="train",code="NodeTooSmall",outcome="change"}': "3x120"},
        {'hbox_queue_waiting_jobs{queue="train",code="CardsInUse",outcome="wait"}': "3x120"},
        at=70,
    ),
    "HBoxIdleHeldGPUs": Case(_held(active=0.01), _held(active=0.9), at=110, quiet_too=_held(active=0.01, since=60)),
    "HBoxCycleSlow": Case(
        _bucket("hbox_scheduler_cycle_seconds", fast=0, all_=100, le="2.5")
        | {'hbox_scheduler_cycle_seconds_bucket{le="5.0"}': "0+100x400"},
        _bucket("hbox_scheduler_cycle_seconds", fast=100, all_=100, le="2.5"),
        at=20,
    ),
    "HBoxDeviceConfigDiffers": Case(
        {'hbox_device_config_differs{service="binder"}': "1x60"}, {'hbox_device_config_differs{service="binder"}': "0x60"}
    ),
    "HBoxPolicyRefused": Case({"hbox_scheduler_policy_refused": "1x60"}, {"hbox_scheduler_policy_refused": "0x60"}),
    "HBoxSchedulerFails": Case(
        {'hbox_scheduler_quarantined{kind="job"}': "2x60", 'hbox_scheduler_quarantined{kind="node"}': "0x60"},
        {'hbox_scheduler_quarantined{kind="job"}': "0x60", 'hbox_scheduler_quarantined{kind="node"}': "0x60"},
    ),
    "HBoxBusBehind": Case(
        {
            'hbox_bus_behind_seconds{durable="binder-binds"}': "9x60",
            'hbox_bus_waiting_messages{durable="binder-binds"}': "40x60",
        },
        {
            'hbox_bus_behind_seconds{durable="binder-binds"}': "9x60",
            'hbox_bus_waiting_messages{durable="binder-binds"}': "0x60",
        },
    ),
    "HBoxStreamNearlyFull": Case(
        {'hbox_bus_stream_bytes{stream="HBOX_STATE"}': "90x60", 'hbox_bus_stream_limit_bytes{stream="HBOX_STATE"}': "100x60"},
        {'hbox_bus_stream_bytes{stream="HBOX_EVENTS"}': "90x60", 'hbox_bus_stream_limit_bytes{stream="HBOX_EVENTS"}': "100x60"},
    ),
    "HBoxBrokerMissing": Case(
        {
            f'hbox_bus_replica_behind{{stream="{stream}",broker="nats-1"}}': f"{behind}x60"
            for stream, behind in (("HBOX_STATE", 1), ("HBOX_JOBS", 0))
        },
        {'hbox_bus_replica_behind{stream="HBOX_STATE",broker="nats-1"}': "1x4 0x60"},
    ),
    "HBoxCertificateExpires": Case(
        _certificate(days=10, of=90),
        # One that has all of its short life before it; one that is for a year, with a month to go.
        _certificate(days=1, of=1) | _certificate(days=30, of=365, name="ca"),
    ),
    "HBoxDeadLetters": Case(
        {'hbox_bus_dead_letters_total{consumer="binder-binds"}': "0 0 1x60"},
        {'hbox_bus_dead_letters_total{consumer="binder-binds"}': "1x60"},
    ),
    "HBoxMessagesLost": Case(
        {'hbox_bus_gaps_total{stream="HBOX_JOBS"}': "0 0 0 1x60"}, {'hbox_bus_gaps_total{stream="HBOX_JOBS"}': "1x60"}
    ),
    "HBoxAdmissionPassedBy": Case(
        {'apiserver_admission_webhook_fail_open_count{name="pods.admission.hbox.io",type="admit"}': "0+1x60"},
        {'apiserver_admission_webhook_fail_open_count{name="pods.admission.hbox.io",type="admit"}': "7x60"},
        quiet_too={'apiserver_admission_webhook_fail_open_count{name="vgpu.hami.io",type="admit"}': "0+1x60"},
    ),
    "HBoxAdmissionFileRefused": Case(
        {'hbox_admission_files_unreadable{file="certificate"}': "1x60"},
        {'hbox_admission_files_unreadable{file="certificate"}': "1 1 0x60"},
    ),
    "HBoxCordonsHeldBack": Case({"hbox_health_cordons_held_back": "4x60"}, {"hbox_health_cordons_held_back": "4 0x60"}),
    "HBoxHealthRestrictionsWaiting": Case(
        {"hbox_health_restrictions_waiting": "3x60"}, {"hbox_health_restrictions_waiting": "3 3 0x60"}
    ),
    "HBoxHealthRulesRefused": Case({"hbox_health_rules_valid": "0x60"}, {"hbox_health_rules_valid": "1x60"}),
    "HBoxIncidentOpen": Case(
        {'hbox_health_incidents{kind="node-fault",state="repairing"}': "1x60"},
        {'hbox_health_incidents{kind="node-fault",state="suspect"}': "1x60"},
        quiet_too={'hbox_health_incidents{kind="card",state="confirmed"}': "1x60"},
    ),
    "HBoxIncidentWaits": Case(
        {'hbox_health_incidents_waiting{kind="card"}': "1x60"},
        {'hbox_health_incidents{kind="card",state="confirmed"}': "1x60"},
        at=45,
        quiet_too={'hbox_health_incidents_waiting{kind="rail"}': "1x20 0x60"},
    ),
    "HBoxCardUnderused": Case(
        _dcgm(PROF_GR_ENGINE_ACTIVE="0.1x60") | {'hbox_card_shares_allocated{uuid="GPU-1"}': "1x60"},
        _dcgm(PROF_GR_ENGINE_ACTIVE="0.1x60", DEV_GPU_UTIL="5x60") | {'hbox_card_shares_allocated{uuid="GPU-1"}': "0x60"},
        at=20,
        quiet_too=_dcgm(PROF_GR_ENGINE_ACTIVE="0.9x60", DEV_GPU_UTIL="99x60")
        | {'hbox_card_shares_allocated{uuid="GPU-1"}': "1x60"},
    ),
    "HBoxCardHot": Case(
        _dcgm("GPU-2", _L20, DEV_GPU_TEMP="88x60"),
        _dcgm("GPU-1", _A100, DEV_GPU_TEMP="86x60", DEV_MEMORY_TEMP=_BLANK, DEV_GPU_TEMP_LIMIT=_BLANK)
        | _dcgm("GPU-2", _L20, DEV_GPU_TEMP="87x60")
        | _dcgm("GPU-3", _B200, DEV_GPU_TEMP="85x60"),
        # A card with a margin is judged by it, however warm it is.
        quiet_too=_dcgm(DEV_GPU_TEMP="90x60", DEV_GPU_TEMP_LIMIT="3x60", DEV_MEMORY_TEMP="95x60"),
    ),
    "HBoxCardMemoryNearlyFull": Case(
        _dcgm(DEV_FB_USED="75000x60", DEV_FB_FREE="5000x60", DEV_FB_RESERVED="600x60"),
        _dcgm(DEV_FB_USED="70000x60", DEV_FB_FREE="9000x60", DEV_FB_RESERVED="600x60"),
        quiet_too=_dcgm(DEV_FB_USED=_BLANK, DEV_FB_FREE="1x60", DEV_FB_RESERVED="1x60"),
    ),
    "HBoxCardPowerLimited": Case(
        _dcgm(DEV_POWER_VIOLATION="0+50000000000x60"),
        _dcgm(DEV_POWER_VIOLATION="0+10000000000x60"),
        at=30,
        quiet_too=_dcgm(DEV_POWER_VIOLATION="5 5 5 9223372036854775792x60"),
    ),
    "HBoxCardSingleBitErrors": Case(
        _dcgm(DEV_ECC_SBE_AGG_TOTAL="0+2x1500"),
        _dcgm(DEV_ECC_SBE_AGG_TOTAL="50000x1500"),
        at=1450,
        quiet_too=_dcgm(DEV_ECC_SBE_AGG_TOTAL="5x700 2147483632x800"),
    ),
    "HBoxCardRowRemapFailed": Case(
        _dcgm(DEV_ROW_REMAP_FAILURE="0 0 1x60"),
        _dcgm(DEV_ROW_REMAP_FAILURE="0x60"),
        quiet_too=_dcgm(DEV_ROW_REMAP_FAILURE=_BLANK),
    ),
    "HBoxCardRowsRemapped": Case(
        _dcgm(DEV_UNCORRECTABLE_REMAPPED_ROWS="3x20 4x60"), _dcgm(DEV_UNCORRECTABLE_REMAPPED_ROWS="3x80"), at=60
    ),
    "HBoxCardDoubleBitErrors": Case(
        _dcgm(DEV_ECC_DBE_VOL_TOTAL="0 0 2x60"),
        _dcgm(DEV_ECC_DBE_VOL_TOTAL="0x60"),
        quiet_too=_dcgm(DEV_ECC_DBE_VOL_TOTAL=_BLANK),
    ),
    "HBoxCardNVLinkErrors": Case(
        _dcgm(DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL="0+7000x60"),
        _dcgm(DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL="0+600x60", DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL="8x60"),
        quiet_too=_dcgm(DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL="0 0 2147483632x60"),
    ),
    "HBoxCardPCIeReplays": Case(
        _dcgm("GPU-2", _A100, DEV_PCIE_REPLAY_COUNTER="0+20x60"),
        _dcgm(DEV_PCIE_REPLAY_COUNTER="0+20x60") | _dcgm("GPU-2", _A100, DEV_PCIE_REPLAY_COUNTER="0+12x60"),
    ),
    "HBoxCardThermalThrottled": Case(
        _dcgm(DEV_THERMAL_VIOLATION="0+12000000000x60"), _dcgm(DEV_THERMAL_VIOLATION="0+3000000000x60"), at=20
    ),
    "HBoxCardRowsAbsent": Case(
        _dcgm("GPU-0", DEV_GPU_TEMP="40x60") | _dcgm("GPU-1", DEV_GPU_TEMP="40x5 stale") | _inventory("GPU-0", "GPU-1"),
        # The whole exporter is away; an instance is no card; the card of another node's exporter that never ran.
        _inventory("GPU-0", "GPU-1"),
        quiet_too=_dcgm("GPU-0", DEV_GPU_TEMP="40x60") | _inventory("GPU-0", "MIG-1") | _inventory("GPU-9", node="n2"),
    ),
    "HBoxReviewsFailing": Case(
        {'hbox_console_reviews_total{kind="access",result="failed"}': "0+3x60"},
        {'hbox_console_reviews_total{kind="access",result="denied"}': "0+3x60"},
    ),
    "HBoxEvictionBreakerOpen": Case(
        {"hbox_binder_eviction_breaker_open": "1x60"}, {"hbox_binder_eviction_breaker_open": "0x60"}
    ),
    "HBoxFabricOld": Case(
        {'hbox_topology_fabric_age_seconds{fabric="ib"}': "0+60x60", 'hbox_topology_fabric_held{fabric="ib"}': "1x60"},
        {'hbox_topology_fabric_age_seconds{fabric="ib"}': "0+60x60", 'hbox_topology_fabric_held{fabric="ib"}': "0x60"},
        at=20,
    ),
    "HBoxFabricGaps": Case(
        {'hbox_topology_fabric_gaps{fabric="ib",kind="miswire"}': "1x60"},
        {'hbox_topology_fabric_gaps{fabric="ib",kind="link-down"}': "1x60"},
        at=45,
    ),
    "HBoxNodesUnmeasured": Case(
        {"hbox_topology_nodes_measured": "100x30 50x60", "hbox_topology_nodes": "100x90"},
        {"hbox_topology_nodes_measured": "100x30 50x60", "hbox_topology_nodes": "100x30 50x60"},
        at=45,
    ),
    "HBoxNodesUnreadable": Case({"hbox_topology_node_warnings": "1x60"}, {"hbox_topology_node_warnings": "1 1 0x60"}, at=20),
}

_LAB = '{pool="lab"}'

RECORDS: Mapping[str, Sum] = {
    "hbox:time_to_bind_slow:ratio_rate5m": Sum(_SLOW, 0.5),
    "hbox:time_to_bind_slow:ratio_rate30m": Sum(_SLOW, 0.5, at=40),
    "hbox:time_to_bind_slow:ratio_rate1h": Sum(_SLOW, 0.5, at=70),
    "hbox:time_to_bind_slow:ratio_rate6h": Sum(_SLOW, 0.5, at=370),
    "hbox:time_to_bind_seconds:p99": Sum(_bucket("hbox_binder_decided_seconds", fast=100, all_=100, le="2.5"), 2.475),
    "hbox:cycle_seconds:p99": Sum(_bucket("hbox_scheduler_cycle_seconds", fast=100, all_=100, le="0.1"), 0.099),
    "hbox:ledger_commit_seconds:p99": Sum(_bucket("hbox_ledger_commit_seconds", fast=100, all_=100, le="0.1"), 0.099),
    "hbox:pending_age_seconds:max": Sum(
        {
            'hbox_scheduler_oldest_job_seconds{state="active"}': "4x20",
            'hbox_scheduler_oldest_job_seconds{state="unschedulable"}': "77x20",
        },
        77,
    ),
    "hbox:turn_age_seconds:max": Sum(
        {
            'hbox_scheduler_oldest_job_seconds{state="active"}': "4x20",
            'hbox_scheduler_oldest_job_seconds{state="unschedulable"}': "77x20",
        },
        4,
    ),
    "hbox:bus_behind_seconds:max": Sum(
        {
            'hbox_bus_behind_seconds{durable="d",instance="a"}': "9x20",
            'hbox_bus_waiting_messages{durable="d",instance="a"}': "40x20",
        },
        9,
        '{durable="d"}',
    ),
    "hbox:stream_full:ratio": Sum(
        {
            'hbox_bus_stream_bytes{stream="S",instance="a"}': "25x20",
            'hbox_bus_stream_limit_bytes{stream="S",instance="a"}': "100x20",
        },
        0.25,
        '{stream="S"}',
    ),
    "hbox:bind_errors:ratio_rate15m": Sum(ALERTS["HBoxBindErrors"].fires, 0.02, at=20),
    "hbox:leaders": Sum(ALERTS["HBoxNoLeader"].quiet, 1, '{component="binder"}'),
    "hbox:processes": Sum(_builds("binder") | _builds("binder", instance="b"), 2, '{component="binder"}'),
    "hbox:evictions_unanswered_seconds:max": Sum(ALERTS["HBoxEvictionsUnanswered"].quiet, 90),
    "hbox:bindings_unanswered_seconds:max": Sum(ALERTS["HBoxBindingsUnanswered"].quiet, 3),
    "hbox:cards:sum": Sum(
        _cards(used="60x20") | {'hbox_cards{pool="lab",model="A100",state="used",instance="a"}': "4x20"},
        64,
        '{pool="lab",state="used"}',
    ),
    "hbox:gar:ratio": Sum(_cards(used="60x20", kept="5x20", idle="15x20", unhealthy="10x20", unavailable="10x20"), 0.75, _LAB),
    # Half of the window, both ends included: the rule records every 30 s.
    "hbox:sor:ratio_1h": Sum(_cards(used="0x60 80x400", unavailable="20x500", idle="80x60 0x400"), 0.8 * 61 / 120, _LAB, at=91),
    "hbox:sor:ratio_1d": Sum(_cards(used="0x60 80x100", unhealthy="20x200", idle="80x60 0x100"), 0.8 * 121 / 243, _LAB, at=121),
    "hbox:jtted_nodes:ratio_1d": Sum(
        {f'hbox_queue_gang_nodes_total{{queue="train",of="{of}"}}': f"0+{n}x30" for of, n in (("used", 6), ("least", 4))},
        1.5,
        '{queue="train"}',
    ),
    "hbox:jtted_groups:ratio_1d": Sum(
        {f'hbox_queue_gang_groups_total{{queue="train",of="{of}"}}': f"0+{n}x30" for of, n in (("used", 2), ("least", 1))},
        2,
        '{queue="train"}',
    ),
    "hbox:submit_to_bound_seconds:p99_1h": Sum(
        {
            f'hbox_queue_submit_to_bound_seconds_bucket{{queue="train",le="{le}"}}': f"0+{n}x80"
            for le, n in (("10", 99), ("60", 100), ("+Inf", 100))
        },
        10,
        '{queue="train"}',
        at=70,
    ),
    "hbox:card_sm_active:ratio": Sum(
        {name: values for name, values in _held(active=0.9).items() if 'uuid="GPU-1"' not in name},
        0.9,
        '{node="n1",card="0",uuid="GPU-0",model="H100"}',
    ),
    "hbox:cards_idle_held:sum": Sum(_held(active=0.01), 1.5, '{queue="train"}', at=45),
    "hbox:gfr:ratio": Sum(
        {
            f'hbox_card_nodes{{pool="lab",state="{state}",instance="{instance}"}}': f"{nodes}x20"
            for state, nodes in {"empty": 1, "partial": 3, "full": 8, "unavailable": 4}.items()
            for instance in "ab"
        },
        0.25,
        _LAB,
    ),
}
