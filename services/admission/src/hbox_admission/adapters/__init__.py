"""The endpoint's I/O."""
