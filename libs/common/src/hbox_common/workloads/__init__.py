"""Gangs that follow from the owners of pods. Pure: no API client, clock or event loop."""

from .gangs import OwnerGang, defaults_of, gang_of, preemptable_of, queue_of
from .owner import Kind, Kinds, Owner, indexed_gang, read_owner
from .placing import Alone, InGang, Missing, Submitted, Unread, place
from .refs import GroupBy, GroupRef, OwnerRef, controller_of, group_ref_of

__all__ = [
    "Alone",
    "GroupBy",
    "GroupRef",
    "InGang",
    "Kind",
    "Kinds",
    "Missing",
    "Owner",
    "OwnerGang",
    "OwnerRef",
    "Submitted",
    "Unread",
    "controller_of",
    "defaults_of",
    "gang_of",
    "group_ref_of",
    "indexed_gang",
    "place",
    "preemptable_of",
    "queue_of",
    "read_owner",
]
