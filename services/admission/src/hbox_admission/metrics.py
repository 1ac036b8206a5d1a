"""What the admission endpoint counts."""

from hbox_common.telemetry import counter, gauge, histogram

REVIEWS = counter("admission_reviews", "Pods that were looked at, by what became of them", ["outcome"])
WARNINGS = counter("admission_warnings", "Warnings to those who made pods")
REFUSED = counter("admission_requests_refused", "Requests that were not answered as a review", ["why"])
REVIEW_SECONDS = histogram("admission_review_seconds", "From the first byte of a request's body to its answer")
UNREADABLE = gauge(
    "admission_files_unreadable", "1 where a file says what cannot be used, and what it said before is in use", ["file"]
)
