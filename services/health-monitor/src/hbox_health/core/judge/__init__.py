"""Judgement of what nodes report: single inputs become findings, findings over time become incidents. No I/O, no clock."""
