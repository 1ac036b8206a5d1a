"""The console's I/O."""
