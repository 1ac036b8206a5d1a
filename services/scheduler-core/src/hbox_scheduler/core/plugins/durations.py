"""Durations as policies and annotations have them."""

from hbox_common.model.durations import duration_s

__all__ = ["duration_s"]
