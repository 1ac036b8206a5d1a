"""The binder's I/O."""
