"""What the ledger decides, without any I/O: books, arbitration, the life of a claim, reconciliation."""
