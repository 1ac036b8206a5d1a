"""Health-monitor's I/O."""
