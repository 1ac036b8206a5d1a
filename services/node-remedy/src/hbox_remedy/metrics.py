"""What node-remedy counts."""

from hbox_common.telemetry import counter

REMEDIES = counter("remedy_results", "Remedies that ended or were refused, by verb and outcome", ["verb", "outcome"])
IGNORED = counter("remedy_decisions_ignored", "Decisions that were not executed and have no result, by reason", ["reason"])
