"""Limits before the ledger judges them: of queues, of card models in queues, and of namespaces."""
