"""The ledger's tables, and its books written to and read from them."""
