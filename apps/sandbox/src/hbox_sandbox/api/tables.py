"""Objects as `Table`, the form in which kubectl reads what it prints: a row an object, with the columns of `printers`
(k8s.io/apiserver pkg/endpoints/handlers/response.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from .errors import ApiError, Json, bad_request
from .printers import Layout, layout_of
from .resources import ResourceType
from .store import Event, Version, watch_line

_META = "meta.k8s.io/v1"
_VERSIONS = ("v1", "v1beta1")
_DEFAULT_TYPES = ("application/json", "application/*", "*/*")


class Include(StrEnum):
    """What a row has of its object."""

    METADATA = "Metadata"
    OBJECT = "Object"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class TableForm:
    """A request's wish for a table. `version`: of meta.k8s.io."""

    include: Include = Include.METADATA
    version: str = "v1"

    def document(self, layout: Layout, objects: Iterable[Json], meta: Json, now: float, *, headers: bool = True) -> bytes:
        """The table of `objects`; `now`: seconds since 1970, for ages; `headers`: with the definitions of the columns."""
        return msgspec.json.encode(
            {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self.version}",
                "metadata": meta,
                "columnDefinitions": [each.definition() for each in layout.columns] if headers else None,
                "rows": [self._row(layout, each, now) for each in objects],
            }
        )

    def of_versions(self, resource: ResourceType, versions: Iterable[Version], meta: Json, now: float) -> bytes:
        return self.document(layout_of(resource), (each.load() for each in versions), meta, now)

    def of_event(self, resource: ResourceType, event: Event, now: float, *, headers: bool) -> bytes:
        """The line of a watch event; only the first line of a watch has `headers`."""
        version = event.version
        meta: Json = {"resourceVersion": str(version.revision)}
        return watch_line(event.type, self.document(layout_of(resource), [version.load()], meta, now, headers=headers))

    def _row(self, layout: Layout, obj: Json, now: float) -> Json:
        row: Json = {"cells": layout.cells(obj, now)}
        match self.include:
            case Include.METADATA:
                row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}
            case Include.OBJECT:
                row["object"] = obj
        return row


def table_form(accept: str, params: Mapping[str, str]) -> TableForm | None:
    """The table that a request accepts before plain JSON, None if it accepts JSON first; 400, 406 for what no server has."""
    for offer in accept.split(","):
        media, *options = (part.strip() for part in offer.split(";"))
        wanted = dict(each.partition("=")[::2] for each in options)
        if media not in _DEFAULT_TYPES or "as" not in wanted:
            if media in _DEFAULT_TYPES:
                return None
            continue
        if wanted["as"] == "Table" and wanted.get("g") == "meta.k8s.io" and wanted.get("v") in _VERSIONS:
            return TableForm(include=_include(params), version=wanted["v"])
    if accept and "as=" in accept:
        text = f"only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io (got {accept})"
        raise ApiError(406, "NotAcceptable", text)
    return None


def _include(params: Mapping[str, str]) -> Include:
    given = params.get("includeObject", "") or Include.METADATA
    try:
        return Include(given)
    except ValueError:
        raise bad_request(
            f"includeObject: Invalid value: \"{given}\": must be 'Metadata', 'Object', 'None', or empty"
        ) from None
