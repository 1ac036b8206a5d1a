"""What is exchanged with the ledger and job-controller: bounds, proposals, plans in flight."""
