"""Signals become verdicts and remediation."""
