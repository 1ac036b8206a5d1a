"""The paths of the API, and the OpenAPI 3.1 document of them: `python -m hbox_console.openapi --write FILE | --check FILE`."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .api import (
    BASE,
    CardList,
    Document,
    EventList,
    EvictionExplanation,
    EvictionPause,
    Evictions,
    ExplanationDocument,
    JobDocument,
    JobList,
    NodeCards,
    NodeDocument,
    NodeExplanation,
    NodeList,
    PlacementExplanation,
    Problem,
    QueueDocument,
    QueueList,
    UsageList,
    WhoAmI,
)
from .core.pages import DEFAULT_LIMIT, MAX_LIMIT

_LIMIT = f"Maximum items of the page, 1 to {MAX_LIMIT} [{DEFAULT_LIMIT}]."
_CONTINUE = "Cursor: metadata.continue of the page before."


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `query`: parameters with their descriptions."""

    path: str
    operation: str
    summary: str
    answer: type[BaseModel]
    query: Mapping[str, str] = field(default_factory=dict)
    stream: bool = False


ROUTES: tuple[Route, ...] = (
    Route("/whoami", "whoami", "The client as the API server knows it, and what it may see", WhoAmI),
    Route(
        "/jobs",
        "jobs",
        "Jobs of namespaces that the client may see, oldest first",
        JobList,
        {
            "namespace": "Only this namespace.",
            "queue": "Only jobs of this queue.",
            "state": "Only these states, separated by commas.",
            "limit": _LIMIT,
            "continue": _CONTINUE,
        },
    ),
    Route("/jobs/{namespace}/{name}", "job", "One job", JobDocument),
    Route(
        "/queues",
        "queues",
        "Queues that the client may see, by name; the others as one sum",
        QueueList,
        {"limit": _LIMIT, "continue": _CONTINUE},
    ),
    Route("/queues/{name}", "queue", "One queue", QueueDocument),
    Route(
        "/nodes",
        "nodes",
        "Nodes, by name",
        NodeList,
        {"pool": "Only nodes of this pool.", "limit": _LIMIT, "continue": _CONTINUE},
    ),
    Route("/nodes/{name}", "node", "One node", NodeDocument),
    Route("/nodes/{name}/cards", "nodeCards", "One node's cards and their holders, its NUMA nodes and kubelet", NodeCards),
    Route("/cards", "cards", "Cards, by node", CardList, {"limit": _LIMIT, "continue": _CONTINUE}),
    Route(
        "/jobs/{namespace}/{name}/explanation", "explanation", "Why a job waits, and what would start it", ExplanationDocument
    ),
    Route(
        "/jobs/{namespace}/{name}/nodes/{node}", "nodeRules", "The rules that a node fails for a waiting job", NodeExplanation
    ),
    Route("/jobs/{namespace}/{name}/placement", "placement", "Why a job has its places", PlacementExplanation),
    Route(
        "/share",
        "share",
        "The share of a queue, level by level, as `hbox share -o json`",
        Document,
        {"queue": "The queue; required.", "resource": "A resource [the cards of the default vendor]."},
    ),
    Route(
        "/usage",
        "usage",
        "Card-hours",
        UsageList,
        {
            "by": "Keys, separated by commas: department, queue, user, model, hour [queue].",
            "since": "Begin: 36h, 7d, today, month, 2026-11-01 [month].",
            "until": "End [now].",
        },
    ),
    Route(
        "/events",
        "events",
        "Public events (CloudEvents) that the client may see",
        EventList,
        {"since": "Begin: 90m, 2h, 7d, 2026-11-01 [all that are kept].", "limit": _LIMIT, "continue": _CONTINUE},
    ),
    Route("/evictions", "evictions", "Receipts of evictions of jobs that the client may see", Evictions, {"limit": _LIMIT}),
    Route(
        "/evicted",
        "evicted",
        "Why pods of a job were evicted, and what the job does now",
        EvictionExplanation,
        {"name": "A job's or pod's name, namespace/name, or uid; required."},
    ),
    Route("/evictions/pause", "evictionPause", "Whether evictions are paused by their rate limit", EvictionPause),
    Route(
        "/watch",
        "watch",
        "Changes of objects as server-sent events; Last-Event-ID resumes",
        Document,
        {"kind": "Only these, separated by commas: Job, Queue, Node.", "namespace": "Only jobs of this namespace."},
        stream=True,
    ),
)

_ERRORS = {
    "400": "The request is wrong.",
    "401": "The client is not known.",
    "403": "The client lacks a right. The answer is the same whether or not the object exists.",
    "404": "There is no such object.",
    "503": "The platform or the API server does not answer; try again.",
}


def openapi() -> dict[str, Any]:
    """The whole document."""
    models: list[type[BaseModel]] = sorted(
        {route.answer for route in ROUTES} | {Problem, Document}, key=lambda model: model.__name__
    )
    _, schemas = models_json_schema(
        [(model, "serialization") for model in models], by_alias=True, ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "HBox",
            "version": "v1",
            "description": "Jobs, queues and nodes as the client's rights in Kubernetes allow. Fields are added without notice; clients ignore unknown ones.",
        },
        "servers": [{"url": BASE}],
        "security": [{"bearer": []}, {"certificate": []}],
        "paths": {route.path: {"get": _operation(route)} for route in ROUTES},
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token that the cluster's API server accepts."},
                "certificate": {"type": "mutualTLS", "description": "A certificate of the cluster's client CA."},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    in_path = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}} for name, text in route.query.items()
    ]
    media = "text/event-stream" if route.stream else "application/json"
    schema: dict[str, Any] = {"type": "string"} if route.stream else {"$ref": f"#/components/schemas/{route.answer.__name__}"}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[str, Any] = {"200": {"description": "OK", "content": {media: {"schema": schema}}}}
    if not route.stream:
        responses["304"] = {"description": "As If-None-Match has it."}
    responses |= {status: {"description": text, "content": problem} for status, text in _ERRORS.items()}
    return {"operationId": route.operation, "summary": route.summary, "parameters": parameters, "responses": responses}


def main(argv: list[str]) -> int:
    match argv:
        case ["--write", path]:
            Path(path).write_text(text())
            return 0
        case ["--check", path]:
            if Path(path).read_text() == text():
                return 0
            sys.stderr.write(f"{path} is not up to date: run `make docs`\n")
            return 1
        case _:
            sys.stderr.write((__doc__ or "") + "\n")
            return 2


def text() -> str:
    return json.dumps(openapi(), indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
