"""What the admission endpoint counts."""

from hbox_common.telemetry import counter, gauge, histogram

REVIEWS = counter("admission_reviews", "Pods reviewed, by outcome", ["outcome"])
VALIDATIONS = counter("admission_validations", "Queues and PodGroups validated, by outcome", ["outcome"])
WARNINGS = counter("admission_warnings", "Warnings returned to clients that create pods, Queues and PodGroups")
REFUSED = counter("admission_requests_refused", "Requests rejected before review, by reason", ["why"])
REVIEW_SECONDS = histogram("admission_review_seconds", "Seconds from the first byte of a request's body to the response")
UNREADABLE = gauge("admission_files_unreadable", "1 while a file is invalid and its previous content remains active", ["file"])
