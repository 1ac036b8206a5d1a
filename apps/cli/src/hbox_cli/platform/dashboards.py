"""Grafana's dashboards, made from the tables below: `python -m hbox_cli.platform.dashboards --check|--write FOLDER`.

A dashboard is rows of panels, a panel is what one looks at and why. As Grafana's JSON by hand it would be two thousand lines.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS, HEIGHT = 24, 8


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: PromQL by the legend of its lines, which may name labels ({{durable}}). `unit`: Grafana's name of one. `shows`: a number instead of lines."""

    title: str
    about: str
    queries: Mapping[str, str]
    unit: str = "short"
    shows: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]


def _quantiles(metric: str, by: str = "") -> dict[str, str]:
    """p50 and p99 of a histogram."""
    labels, legend = (f", {by}", f" {{{{{by}}}}}") if by else ("", "")
    return {
        f"p{100 * q:.0f}{legend}": f"histogram_quantile({q}, sum by (le{labels}) (rate({metric}_bucket[$__rate_interval])))"
        for q in (0.5, 0.99)
    }


def _of_a_day(metric: str) -> dict[str, str]:
    """p99 by kind: incidents are too few for the interval of a panel."""
    return {"{{kind}}": f"histogram_quantile(0.99, sum by (le, kind) (increase({metric}_bucket[1d])))"}


def _rate(metric: str, by: str) -> dict[str, str]:
    return {f"{{{{{by}}}}}": f"sum by ({by}) (rate({metric}[$__rate_interval]))"}


def _queues(state: str) -> dict[str, str]:
    """The queues with the most cards in this state."""
    return {"{{queue}}": f'topk(20, max by (queue) (hbox_queue_cards{{state="{state}"}}) > 0)'}


#: Joins a metric of a process with which service it is.
_OF = " * on (instance, job) group_left (component) hbox_build_info"

DASHBOARDS = (
    Dashboard(
        "hbox-overview",
        "HBox / Overview",
        (
            (
                Panel(
                    "Alerts",
                    "Alerts of HBox that fire",
                    {"": 'count(ALERTS{alertname=~"HBox.*",alertstate="firing"}) or vector(0)'},
                    shows=True,
                ),
                Panel("Nodes", "Nodes in the inventory", {"": "max(hbox_topology_nodes)"}, shows=True),
                Panel(
                    "Cards",
                    "Cards in the inventory that may be used",
                    {"": 'max(hbox_topology_cards{healthy="true"})'},
                    shows=True,
                ),
                Panel("Idle cards", "Parts of cards among them", {"": "max(hbox_scheduler_idle_cards)"}, shows=True),
                Panel("Live claims", "Pods that hold something", {"": "max(hbox_ledger_live_claims)"}, shows=True),
                Panel("Oldest job", "That waits for places", {"": "hbox:pending_age_seconds:max"}, "s", shows=True),
            ),
            (
                Panel(
                    "Jobs by state",
                    "Jobs with pods to place, by what they wait for",
                    {"{{state}}": "max by (state) (hbox_scheduler_jobs)"},
                ),
                Panel("Bindings a second", "By their outcome", _rate("hbox_binder_binds_total", "outcome"), "ops"),
            ),
            (
                Panel(
                    "From decision to binding", "SLO: 99 of 100 within 2.5 s", _quantiles("hbox_binder_decided_seconds"), "s"
                ),
                Panel(
                    "Plans are accepted",
                    "1 where the ledger is frozen or holds plans, or evictions pause",
                    {
                        "frozen": "max(hbox_ledger_frozen)",
                        "held": "max(hbox_ledger_plans_held)",
                        "evictions pause": "max(hbox_ledger_evictions_paused)",
                    },
                ),
            ),
        ),
    ),
    Dashboard(
        "hbox-queues",
        "HBox / Queues and fairness",
        (
            (
                Panel("Cards by queue", "In use, the 20 largest; departments with all queues below them", _queues("used")),
                Panel(
                    "Use of what queues deserve",
                    "Cards in use of those that the queue deserves; above 100 % it borrows",
                    {
                        "{{queue}}": 'topk(20, max by (queue) (hbox_queue_cards{state="used"})'
                        ' / (max by (queue) (hbox_queue_cards{state="deserved"}) > 0))'
                    },
                    "percentunit",
                ),
                Panel("Borrowed", "Cards beyond what a queue deserves", _queues("borrowed")),
            ),
            (
                Panel(
                    "Oldest pending job by queue",
                    "Of which no pod has a place; the 20 oldest",
                    {"{{queue}}": "topk(20, max by (queue) (hbox_queue_oldest_pending_seconds) > 0)"},
                    "s",
                ),
                Panel(
                    "Pending jobs by queue",
                    "The 20 queues with the most",
                    {"{{queue}}": 'topk(20, max by (queue) (hbox_queue_jobs{state="pending"}) > 0)'},
                ),
                Panel(
                    "Evictions by queue",
                    "Pods of the queue whose eviction was decided within an hour, by rule",
                    {"{{queue}} {{rule}}": "topk(20, sum by (queue, rule) (increase(hbox_queue_evictions_total[1h])) > 0)"},
                ),
            ),
            (
                Panel(
                    "Waiting jobs by reason",
                    "Codes of `hbox reason ls`; the 20 with the most jobs",
                    {"{{code}}": "topk(20, sum by (code) (hbox_queue_waiting_jobs))"},
                ),
                Panel(
                    "Time lost to each reason",
                    "Jobs that wait at a time, by code of the reason",
                    {"{{code}}": "topk(20, sum by (code) (rate(hbox_job_wait_seconds_total[$__rate_interval])))"},
                ),
                Panel(
                    "Jobs that can never start",
                    "Waiting does not help them: their owners have to change them",
                    {"{{queue}} {{code}}": 'topk(20, sum by (queue, code) (hbox_queue_waiting_jobs{outcome="change"}))'},
                ),
            ),
            (
                Panel(
                    "Time to bind by queue",
                    "p99 of an hour, from a job's creation until its minimum of pods is bound",
                    {"{{queue}}": "topk(20, hbox:submit_to_bound_seconds:p99_1h)"},
                    "s",
                ),
                Panel(
                    "Cards held and hardly used",
                    "By queue: compute activity below 5 % for half an hour; needs dcgm-exporter and podMonitor.cards",
                    {"{{queue}}": "topk(20, hbox:cards_idle_held:sum)"},
                ),
                Panel(
                    "JTTED of gangs",
                    "Nodes and leaf groups used within a day, of the least that could hold the gangs; 1 is the best",
                    {
                        "nodes {{queue}}": "topk(10, hbox:jtted_nodes:ratio_1d)",
                        "groups {{queue}}": "topk(10, hbox:jtted_groups:ratio_1d)",
                    },
                ),
            ),
            (
                Panel("Cards by state", "Of all pools", {"{{state}}": "sum by (state) (hbox:cards:sum)"}),
                Panel(
                    "GAR and SOR",
                    "Allocated cards now, and card-hours of a day, by pool",
                    {"GAR {{pool}}": "hbox:gar:ratio", "SOR of a day {{pool}}": "hbox:sor:ratio_1d"},
                    "percentunit",
                ),
                Panel(
                    "GFR", "Nodes with both used and idle cards, of all, by pool", {"{{pool}}": "hbox:gfr:ratio"}, "percentunit"
                ),
            ),
            (
                Panel(
                    "Age of the oldest job",
                    "By what it waits for",
                    {"{{state}}": "max by (state) (hbox_scheduler_oldest_job_seconds)"},
                    "s",
                ),
                Panel(
                    "Plans by the ledger's answer",
                    "Refusals by reason: limits, rights, fairness",
                    _rate("hbox_ledger_plans_total", "result"),
                    "ops",
                ),
            ),
            (
                Panel(
                    "Evictions and revocations",
                    "By kind and outcome",
                    {"{{kind}} {{outcome}}": "sum by (kind, outcome) (rate(hbox_binder_evictions_total[$__rate_interval]))"},
                    "ops",
                ),
                Panel(
                    "Evictions without a result",
                    "Age of the oldest",
                    {"oldest": "hbox:evictions_unanswered_seconds:max"},
                    "s",
                ),
            ),
            (
                Panel(
                    "Quotas of namespaces",
                    "What pods hold of what a ResourceQuota allows of cards",
                    {
                        "{{namespace}} {{resource}}": "max by (namespace, resource) (hbox_ledger_card_quota_used)"
                        " / (max by (namespace, resource) (hbox_ledger_card_quota_limit) > 0)"
                    },
                    "percentunit",
                ),
                Panel(
                    "Admitted PodGroups",
                    "By `enqueue`",
                    {"admitted": "sum(rate(hbox_scheduler_admitted_total[$__rate_interval]))"},
                    "ops",
                ),
            ),
        ),
    ),
    Dashboard(
        "hbox-scheduler",
        "HBox / Scheduler",
        (
            (
                Panel("Planning cycles", "Without sending their plans", _quantiles("hbox_scheduler_cycle_seconds"), "s"),
                Panel(
                    "Placements a second",
                    "Pods in new plans",
                    {"placed": "sum(rate(hbox_scheduler_placements_total[$__rate_interval]))"},
                    "ops",
                ),
            ),
            (
                Panel(
                    "The ledger's transactions", "SLO: 99 of 100 within 50 ms", _quantiles("hbox_ledger_commit_seconds"), "s"
                ),
                Panel(
                    "Calls to the API server",
                    "Of the binder, p99 by verb",
                    {
                        "{{verb}}": "histogram_quantile(0.99, sum by (le, verb) (rate(hbox_binder_call_seconds_bucket[$__rate_interval])))"
                    },
                    "s",
                ),
            ),
            (
                Panel("Answers", "Of the ledger to our plans", _rate("hbox_scheduler_answers_total", "result"), "ops"),
                Panel(
                    "Largest gang that would start",
                    "Pods with so many whole cards each, by idle cards",
                    {"{{cards}} cards": "max by (cards) (hbox_scheduler_largest_gang_pods)"},
                ),
            ),
            (
                Panel(
                    "Waiting, by shard",
                    "Jobs with pods to place, where there are several schedulers",
                    {"{{shard}}": "sum by (shard) (hbox_jobs_waiting_by_shard)"},
                ),
                Panel(
                    "Conflicts",
                    "Plans refused because another shard had taken the place",
                    {"{{instance}}": "rate(hbox_scheduler_conflicts_total[$__rate_interval])"},
                    "ops",
                ),
            ),
            (
                Panel(
                    "Fragmentation",
                    "Idle cards that pods of today's mix cannot use (FGD's F), of all",
                    {"of all cards": "max(hbox_scheduler_fragmentation)"},
                    "percentunit",
                ),
                Panel(
                    "Without an answer",
                    "Plans sent; decisions that the binder holds",
                    {"plans": "max(hbox_scheduler_unanswered_plans)", "decisions": "max(hbox_binder_decisions_waiting)"},
                ),
            ),
        ),
    ),
    Dashboard(
        "hbox-health",
        "HBox / Health",
        (
            (
                Panel("Open incidents", "In all states", {"": "sum(hbox_health_incidents) or vector(0)"}, shows=True),
                Panel(
                    "Wait for an operator",
                    "Confirmed, and no remedy of HBox brings them further",
                    {"": "sum(hbox_health_incidents_waiting) or vector(0)"},
                    shows=True,
                ),
                Panel("Cards out of use", "By verdicts", {"": "max(hbox_health_bad_cards)"}, shows=True),
                Panel("Unhealthy nodes", "By verdicts", {"": 'max(hbox_health_nodes{healthy="false"})'}, shows=True),
                Panel(
                    "Held back",
                    "Nodes that the breaker, or the limit of cordons, keeps in use",
                    {"": "max(hbox_health_restrictions_waiting) + max(hbox_health_cordons_held_back)"},
                    shows=True,
                ),
                Panel(
                    "Card-hours lost in a day",
                    "Of all kinds",
                    {"": "sum(increase(hbox_health_card_hours_lost_total[1d])) or vector(0)"},
                    shows=True,
                ),
            ),
            (
                Panel(
                    "Incidents by kind",
                    "Open, without those of programs",
                    {"{{kind}}": 'sum by (kind) (hbox_health_incidents{kind!="user-fault"})'},
                ),
                Panel(
                    "Incidents by state",
                    "From the first evidence to the check after the repair",
                    {"{{state}}": "sum by (state) (hbox_health_incidents)"},
                ),
                Panel(
                    "New incidents an hour",
                    "Confirmed within the last hour, by kind",
                    {"{{kind}}": 'sum by (kind) (increase(hbox_health_incidents_entered_total{state="confirmed"}[1h]))'},
                ),
            ),
            (
                Panel(
                    "Time to detect",
                    "From the agent's reading until the incident is confirmed, debounce included; p99 of a day by kind",
                    _of_a_day("hbox_health_detect_seconds"),
                    "s",
                ),
                Panel(
                    "Time to isolate",
                    "From the verdict until it is read back, of a node until its cordon is observed; p99 of a day by kind",
                    _of_a_day("hbox_health_isolate_seconds"),
                    "s",
                ),
                Panel(
                    "Time to return",
                    "From the verdict until the hardware is schedulable again; p99 of a day by kind",
                    _of_a_day("hbox_health_return_seconds"),
                    "s",
                ),
            ),
            (
                Panel(
                    "Card-hours lost by kind",
                    "Cards out of use at a time, by the kind of the incident that took them",
                    {"{{kind}}": "sum by (kind) (rate(hbox_health_card_hours_lost_total[$__rate_interval])) * 3600"},
                ),
                Panel(
                    "Card-hours lost by blame",
                    "Within a day: hardware, software, operators, programs",
                    {"{{blame}}": "sum by (blame) (increase(hbox_health_card_hours_lost_total[1d]))"},
                ),
            ),
            (
                Panel(
                    "Remedies",
                    "Results that node-remedy reported, within an hour",
                    {"{{verb}} {{outcome}}": "sum by (verb, outcome) (increase(hbox_health_remedies_total[1h]))"},
                ),
                Panel(
                    "Reports of agents",
                    "A second; refused ones by reason",
                    {
                        "judged": "sum(rate(hbox_health_reports_total[$__rate_interval]))",
                        "refused {{reason}}": "sum by (reason) (rate(hbox_health_reports_refused_total[$__rate_interval]))",
                    },
                    "ops",
                ),
                Panel(
                    "Clocks of agents that are wrong",
                    "Incidents within an hour whose time of detection is unknown",
                    {"{{kind}}": "sum by (kind) (increase(hbox_health_detect_unmeasured_total[1h]))"},
                ),
            ),
        ),
    ),
    Dashboard(
        "hbox-bus",
        "HBox / Bus",
        (
            (
                Panel("Messages stored", "A second, by type", _rate("hbox_bus_published_total", "type"), "ops"),
                Panel(
                    "From publishing to JetStream's acknowledgement",
                    "Retries included",
                    _quantiles("hbox_bus_publish_seconds"),
                    "s",
                ),
            ),
            (
                Panel("Waiting", "For durable consumers", {"{{durable}}": "max by (durable) (hbox_bus_waiting_messages)"}),
                Panel(
                    "Behind",
                    "Age of the oldest message of the last batch",
                    {"{{durable}}": "max by (durable) (hbox_bus_behind_seconds)"},
                    "s",
                ),
            ),
            (
                Panel(
                    "Streams",
                    "How full; HBOX_STATE refuses what is new when it is, the others drop their oldest",
                    {"{{stream}}": "hbox:stream_full:ratio"},
                    "percentunit",
                ),
                Panel(
                    "The ledger's outbox", "Committed, and not published yet", {"messages": "max(hbox_ledger_outbox_messages)"}
                ),
            ),
            (
                Panel(
                    "Set aside",
                    "Dead letters an hour",
                    {"{{consumer}}": "sum by (consumer) (increase(hbox_bus_dead_letters_total[1h]))"},
                ),
                Panel(
                    "Connections made anew",
                    "In an hour, and messages dropped unread",
                    {
                        "reconnects": "sum(increase(hbox_bus_reconnects_total[1h]))",
                        "gaps {{stream}}": "sum by (stream) (increase(hbox_bus_gaps_total[1h]))",
                    },
                ),
            ),
        ),
    ),
    Dashboard(
        "hbox-services",
        "HBox / Services",
        (
            (
                Panel("Processes", "Of each service", {"{{component}}": "hbox:processes"}),
                Panel(
                    "Conditions that are not good",
                    "As in /readyz",
                    {"{{instance}} {{condition}}": "hbox_condition == 0"},
                ),
            ),
            (
                Panel(
                    "Memory",
                    "Resident",
                    {"{{component}} {{instance}}": "process_resident_memory_bytes" + _OF},
                    "bytes",
                ),
                Panel(
                    "Processor",
                    "Cores in use",
                    {"{{component}} {{instance}}": "rate(process_cpu_seconds_total[$__rate_interval])" + _OF},
                ),
                Panel(
                    "Longest turn",
                    "Of the event loop within the last minutes; meanwhile the process answers no message",
                    {"{{component}} {{instance}} {{clock}}": "hbox_loop_longest_turn_seconds" + _OF},
                    "s",
                ),
            ),
            (
                Panel(
                    "Uptime",
                    "",
                    {"{{component}} {{instance}}": "(time() - process_start_time_seconds)" + _OF},
                    "s",
                ),
                Panel("Who acts", "1 while a process acts for its service", {"{{component}} {{instance}}": "hbox_leading"}),
            ),
            (
                Panel(
                    "Sick",
                    "Nodes, and cards, by health-monitor; cordons that are held back",
                    {
                        "nodes": 'max(hbox_health_nodes{healthy="false"})',
                        "cards": "max(hbox_health_bad_cards)",
                        "held back": "max(hbox_health_cordons_held_back)",
                    },
                ),
                Panel(
                    "Admission",
                    "Pods that the admission endpoint looked at, by what became of them; where there is one",
                    _rate("hbox_admission_reviews_total", "outcome"),
                    "ops",
                ),
                Panel(
                    "Writes to Kubernetes",
                    "Of job-controller: conditions, statuses, Events",
                    {"{{kind}} {{result}}": "sum by (kind, result) (rate(hbox_jobs_kube_writes_total[$__rate_interval]))"},
                    "ops",
                ),
            ),
        ),
    ),
)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana imports and provisions it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        width, height = COLUMNS // len(row), HEIGHT // 2 if all(panel.shows for panel in row) else HEIGHT
        for column, panel in enumerate(row):
            targets = [
                {"refId": chr(ord("A") + i), "datasource": source, "expr": expr, "legendFormat": legend}
                for i, (legend, expr) in enumerate(panel.queries.items())
            ]
            panels.append(
                {
                    "id": len(panels) + 1,
                    "type": "stat" if panel.shows else "timeseries",
                    "title": panel.title,
                    "description": panel.about,
                    "datasource": source,
                    "gridPos": {"x": column * width, "y": y, "w": width, "h": height},
                    "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                    "targets": targets,
                }
            )
        y += height
    variable = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    links = [
        {"type": "dashboards", "title": "HBox", "tags": ["hbox"], "asDropdown": True, "includeVars": True, "keepTime": True}
    ]
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["hbox"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "links": links,
        "panels": panels,
    }


def texts() -> dict[str, str]:
    """Content by file name."""
    return {f"{one.uid}.json": json.dumps(document(one), indent=1, ensure_ascii=False) + "\n" for one in DASHBOARDS}


def main() -> int:
    match sys.argv[1:]:
        case ["--write", folder]:
            for name, text in texts().items():
                (Path(folder) / name).write_text(text)
        case ["--check", folder]:
            if {path.name: path.read_text() for path in Path(folder).iterdir()} != texts():
                print(f"{folder} is not what the tables say; `make docs` writes it anew", file=sys.stderr)
                return 1
        case _:
            print("usage: python -m hbox_cli.platform.dashboards --check|--write FOLDER", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
