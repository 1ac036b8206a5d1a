"""From an HTTP request to an operation and back: paths, verbs, bodies, options. Streaming is `streams`; semantics live below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from .cluster import Cluster
from .errors import ApiError, Json, bad_request, method_not_allowed, not_found, success, unknown_path, unsupported_media_type
from .fieldvalidation import FieldValidation
from .podlogs import CONNECTS, no_metrics, no_process
from .pods import bind, deletion_from, evict
from .printers import SCALE
from .protobuf import MEDIA as PROTOBUF
from .protobuf import decode_protobuf
from .reads import list_pieces, query_from, read_body, select
from .resources import METRICS, NAMESPACES, PODS, REVIEWS, ResourceType
from .reviews import ADMIN, User, review
from .scale import scale_of, update_scale
from .tables import TableForm
from .writes import Deletion, Options, Target, Written, create, delete, patch, update

_decode = msgspec.json.Decoder().decode
_YAML = ("application/yaml", "application/apply-patch+yaml")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_SUBRESOURCE_VERBS = {
    "binding": ("create",),
    "eviction": ("create",),
    "status": ("get", "update", "patch"),
    "finalize": ("update",),
    "scale": ("get", "update", "patch"),
    "log": ("get",),
    **dict.fromkeys(CONNECTS, ("get", "create", "update", "patch", "delete")),
}


@dataclass(frozen=True, slots=True)
class Call:
    """A routed request: which verb on what."""

    verb: str
    target: Target

    @property
    def subject(self) -> str:
        """As fault rules name it: `pods`, `pods/binding`."""
        plural = self.target.resource.plural
        return f"{plural}/{self.target.subresource}" if self.target.subresource else plural


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its JSON body in one or more pieces, and warnings for the client."""

    code: int
    pieces: list[bytes] | Iterator[bytes]
    warnings: Sequence[str] = ()


def route(cluster: Cluster, method: str, path: str, params: Mapping[str, str]) -> Call:
    """404 for paths that nothing serves, 405 for verbs that the resource does not know."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise unknown_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "watch":
        raise unknown_path()
    resource = cluster.registry.find(group, version, rest[0])
    if group == "" and rest == ["bindings"] and namespace:
        return Call("create", Target(PODS, namespace, "", "binding"))
    if resource is None or len(rest) > 3 or (bool(namespace) and not resource.namespaced):
        raise unknown_path()
    name, subresource = (rest[1] if len(rest) > 1 else ""), (rest[2] if len(rest) > 2 else "")
    if subresource and subresource not in resource.subresources:
        # For custom resources the real server answers as if the object did not exist, even if it does.
        raise not_found(resource.plural, resource.group, name) if resource.custom else unknown_path()
    if resource.namespaced and not namespace and (name or method not in ("GET", "DELETE")):
        raise unknown_path() if name else method_not_allowed()
    verb = _verb(method, name, subresource, params)
    if verb not in resource.verbs:
        raise method_not_allowed()
    return Call(verb, Target(resource, namespace, name, subresource))


def _verb(method: str, name: str, subresource: str, params: Mapping[str, str]) -> str:
    if method == "GET":
        if params.get("watch") in ("true", "1"):
            return "watch"
        return "get" if name else "list"
    verb = ("delete" if name else "deletecollection") if method == "DELETE" else _VERBS.get(method, "")
    takes_name = verb in ("update", "patch", "delete") or (verb == "create" and subresource)
    if not verb or bool(name) != bool(takes_name) or (subresource and verb not in _SUBRESOURCE_VERBS[subresource]):
        raise method_not_allowed()
    return verb


def perform(
    cluster: Cluster,
    call: Call,
    params: Mapping[str, str],
    *,
    content_type: str,
    body: bytes,
    agent: str,
    stale_at: int | None = None,
    table: TableForm | None = None,
    user: User = ADMIN,
) -> Answer:
    """Everything but watches. `table`: answer reads by a table; `user`: who asks."""
    target = call.target
    if target.resource in METRICS:
        raise no_metrics()
    if target.subresource in CONNECTS:
        cluster.find(target.resource, target.namespace, target.name)
        raise no_process(CONNECTS[target.subresource])
    if target.resource in REVIEWS:
        answer = review(cluster, target.resource, target.namespace, parse(body, content_type), user)
        return Answer(201, [msgspec.json.encode(answer)])
    if target.subresource == "scale":
        return _scale(cluster, call, params, content_type=content_type, body=body, agent=agent, table=table)
    applies = call.verb == "patch" and content_type == _PATCHES[3]
    options = _options(params, "" if applies else agent)
    match call.verb:
        case "get":
            version = cluster.find(target.resource, target.namespace, target.name)
            if table is not None:
                meta = {"resourceVersion": str(version.revision)}
                return Answer(200, [table.of_versions(target.resource, [version], meta, cluster.clock())])
            return Answer(200, [read_body(target.resource, version)])
        case "list":
            query = query_from(target.resource, target.namespace, "", params)
            selection = select(cluster, target.resource, target.namespace, query, stale_at=stale_at)
            if table is not None:
                return Answer(200, [table.of_versions(target.resource, selection.versions, selection.meta, cluster.clock())])
            return Answer(200, list_pieces(target.resource, selection))
        case "delete":
            written = delete(cluster, target, _deletion(params, content_type, body))
        case "deletecollection":
            return _delete_collection(cluster, target, params, content_type, body)
        case "patch":
            media = content_type or "application/json"
            if media not in _PATCHES:
                raise unsupported_media_type(media, _PATCHES)
            written = patch(cluster, target, media, parse(body, media), options)
        case "update":
            written = update(cluster, target, parse(body, content_type), options)
        case _:
            written = _create(cluster, target, parse(body, content_type), options)
    return _answer(target.resource, written, options.warnings)


def _scale(
    cluster: Cluster,
    call: Call,
    params: Mapping[str, str],
    *,
    content_type: str,
    body: bytes,
    agent: str,
    table: TableForm | None,
) -> Answer:
    if call.verb == "get":
        scale = scale_of(cluster.find(call.target.resource, call.target.namespace, call.target.name))
    else:
        media = content_type if call.verb == "patch" else ""
        scale = update_scale(cluster, call.target, parse(body, content_type), _options(params, agent), media=media)
    if table is not None:
        meta = {"resourceVersion": scale["metadata"]["resourceVersion"]}
        return Answer(200, [table.document(SCALE, [scale], meta, cluster.clock())])
    return Answer(200, [msgspec.json.encode(scale)])


def _create(cluster: Cluster, target: Target, obj: Any, options: Options) -> Written:
    if target.subresource == "binding":
        name = target.name or str(((obj if isinstance(obj, dict) else {}).get("metadata") or {}).get("name", ""))
        return bind(cluster, Target(PODS, target.namespace, name, "binding"), obj, options)
    if target.subresource == "eviction":
        return evict(cluster, target, obj, options)
    return create(cluster, target, obj, options)


def _answer(resource: ResourceType, written: Written, warnings: Sequence[str] = ()) -> Answer:
    if written.version is None:
        return Answer(written.code, [msgspec.json.encode(written.body)], warnings)
    return Answer(written.code, [read_body(resource, written.version)], warnings)


def _options(params: Mapping[str, str], agent: str) -> Options:
    if params.get("dryRun", "All") not in ("All", ""):
        raise bad_request(f'dryRun: Unsupported value: "{params["dryRun"]}": supported values: "All"')
    manager = params.get("fieldManager", "") or agent.partition("/")[0].partition(" ")[0]
    if (validation := params.get("fieldValidation", "")) not in ("", "Ignore", "Warn", "Strict"):
        raise bad_request(f'fieldValidation: Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"')
    return Options(
        dry_run=params.get("dryRun") == "All",
        manager=manager,
        force=params.get("force") in ("true", "1"),
        validation=FieldValidation(validation),
    )


def _deletion(params: Mapping[str, str], content_type: str, body: bytes) -> Deletion:
    given: Any = parse(body, content_type) if body.strip() else {}
    if not isinstance(given, dict):
        raise bad_request("the body of the request is not a JSON object")
    options: Json = dict(given)
    if "gracePeriodSeconds" in params:
        if not params["gracePeriodSeconds"].lstrip("-").isdigit():
            raise bad_request(
                f'strconv.ParseInt: parsing "{params["gracePeriodSeconds"]}": invalid syntax (gracePeriodSeconds)'
            )
        options.setdefault("gracePeriodSeconds", int(params["gracePeriodSeconds"]))
    if "propagationPolicy" in params:
        options.setdefault("propagationPolicy", params["propagationPolicy"])
    return deletion_from(options, dry_run=params.get("dryRun") == "All")


def _delete_collection(cluster: Cluster, target: Target, params: Mapping[str, str], content_type: str, body: bytes) -> Answer:
    resource = target.resource
    if resource.storage == NAMESPACES.storage:
        raise method_not_allowed()
    query = query_from(resource, target.namespace, "", params)
    deletion = _deletion(params, content_type, body)
    found = cluster.store.collection(resource.storage).scan(prefix=f"{target.namespace}/" if target.namespace else "", after="")
    chosen = [each for each in found if query.match is None or query.match(each)]
    for version in chosen:
        delete(cluster, Target(resource, version.namespace, version.name), deletion)
    return Answer(200, [msgspec.json.encode(success())])


def parse(body: bytes, content_type: str) -> Any:
    """The decoded body; 400 where it cannot be read, 415 for other media types."""
    media = content_type or "application/json"
    if media == PROTOBUF:
        return decode_protobuf(body)
    if media in _YAML and not body.lstrip().startswith((b"{", b"[")):
        try:
            return yaml.safe_load(body)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {' '.join(str(error).split())}") from error
    if not (media.endswith("json") or media in _YAML):
        raise unsupported_media_type(media, ("application/json", "application/yaml", PROTOBUF))
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def too_large_body(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")
