"""The wire map's data: every form that the interface fixes or leaves open, and what a connection sets instead.

Only values and their checks stand here; what is done with them is wire.py's. What each open form is for, and
why its default is what it is, are rows of silences.py: a field that is added here gets its row there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from airflow_tds.client import errors
from airflow_tds.client.models import describe
from airflow_tds.client.refusals import SILENT_KINDS, Kind
from airflow_tds.client.routes import Route, check_headers, route

__all__ = ["LATER_WRITES", "PROFILES", "Forms"]

#: Where the inputs of a write travel beside its table.
_PLACES = {"format": "body /format", "update_mode": "body /update_mode", "key_columns": None, "object": "body /object"}
#: The route that §4.2 fixes for appends, and that the profile `patch` takes for all later writes.
LATER_WRITES = "PATCH /tables/{table_id}/data"
#: Sets of overrides that have a name.
PROFILES: Mapping[str, Mapping[str, Any]] = {"routes": {}, "patch": {"overwrite": LATER_WRITES, "upsert": LATER_WRITES}}

#: The name of a header; empty for none.
_HEADER = r"^[A-Za-z0-9-]*$"
#: A JSON pointer; empty for the whole document.
_POINTER = r"^(/[^/]+)*$"
Pointers = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Forms(BaseModel):
    """What is fixed, what is assumed, what a connection sets.

    A route is overridden by a line such as `"truncate": "DELETE /tables/{table_id}/rows"`, or by a mapping such
    as `{"line": ..., "places": {"format": "query fmt"}}`. Pointers are JSON pointers: places where a reply may
    hold the value. Each field's meaning, default and reason are rows of silences.py and docs/wire.md.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    info: Route = route("GET /tables/{table_id}/data/info")
    upload: Route = route(
        "POST /tables/{table_id}/data/upload", "assumed", "if_unsent", "initiate_put", **_PLACES | {"update_mode": None}
    )
    append: Route = route(LATER_WRITES, "§4.2", "if_unsent", "initiate_put", **_PLACES)
    overwrite: Route = route(
        "POST /tables/{table_id}/data/overwrite", "assumed", "if_unsent", "initiate_put", **_PLACES
    )
    upsert: Route = route(
        "POST /tables/{table_id}/data/upsert",
        "assumed",
        "if_unsent",
        "initiate_put",
        **_PLACES | {"key_columns": "body /key_columns"},
    )
    presign: Route = route("POST /tables/{table_id}/data/uploads", table_id=None, format="body /format")
    delete_rows: Route = route("POST /tables/{table_id}/data/delete", "assumed", "if_unsent", filters="body /filters")
    truncate: Route = route("POST /tables/{table_id}/data/truncate", "assumed", "if_unsent")
    get_job: Route = route("GET /data/jobs/{job_id}")
    query_json: Route = route(
        "GET /tables/{table_id}/data/query",
        "§4.2",
        filters="query filters",
        limit="query limit",
        offset="query offset",
        etag="header If-None-Match",
        format=None,
    )
    start_query: Route = route("POST /data/queries", "§4.2")
    poll_query: Route = route("GET /data/query/{job_id}", "§4.2")

    headers: Mapping[str, str] = {}
    put_headers: Mapping[str, str] = {}
    idempotency_header: str = Field(default="", pattern=_HEADER)
    format_tokens: Mapping[str, str] = {}
    mode_tokens: Mapping[str, str] = {}
    media_types: Mapping[str, str] = {
        "json": "application/json",
        "csv": "text/csv",
        "ndjson": "application/x-ndjson",
        "parquet": "application/vnd.apache.parquet",
    }
    write_formats: tuple[str, ...] = ("json", "csv", "ndjson", "parquet")
    row_layout: Literal["records", "columns", "lines"] = "records"
    rows_at: str = Field(default="", pattern=_POINTER)
    columns_at: str = Field(default="/columns", pattern=_POINTER)
    filter_values: Literal["number_or_text", "text"] = "number_or_text"

    job_id: Pointers = ("/job_id", "/jobId", "/id", "")
    upload_url: Pointers = ("/upload_url", "/presigned_url", "/url")
    upload_headers: Pointers = ("/upload_headers",)
    upload_object: Pointers = ("/object", "/upload_id", "/key")
    expires_at: Pointers = ("/expires_at",)
    upload_url_lifetime: float = Field(default=3600.0, gt=0, allow_inf_nan=False)

    row_count: Pointers = ("/row_count",)
    total_size_bytes: Pointers = ("/total_size_bytes",)
    data_files: Pointers = ("/data_files",)
    last_updated: Pointers = ("/last_updated",)
    snapshot_id: Pointers = ("/snapshot_id",)

    job_status: Pointers = ("/status",)
    job_error: Pointers = ("/error",)
    completed: Pointers = ("COMPLETED",)
    failed: Pointers = ("FAILED",)
    no_data_statuses: tuple[str, ...] = ()

    page_layout: Literal["document", "lines"] = "document"
    items: Pointers = ("/items",)
    columns: Pointers = ()
    total_count: Pointers = ("/metadata/total_count",)
    has_next: Pointers = ("/metadata/has_next",)
    total_count_header: str = Field(default="", pattern=_HEADER)
    has_next_header: str = Field(default="", pattern=_HEADER)
    etag: Pointers = ("/etag",)
    etag_header: str = "ETag"

    ready: tuple[int, ...] = (307,)
    pending: tuple[int, ...] = (202,)
    poll_failed: tuple[int, ...] = ()
    poll_by: Literal["poll_query", "get_job"] = "poll_query"

    error_kinds: Mapping[str, Kind] = SILENT_KINDS
    error_code: Pointers = ("/code",)
    error_detail: Pointers = ("/detail",)

    @model_validator(mode="before")
    @classmethod
    def _read_routes(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        routes = {name: info.default for name, info in cls.model_fields.items() if isinstance(info.default, Route)}
        return {name: _overridden(name, routes[name], v) if name in routes else v for name, v in given.items()}

    @model_validator(mode="after")
    def _tell_writes_apart(self) -> Self:
        """Refuse two writes that look alike on the wire: an overwrite would append, or worse."""
        seen: dict[Any, str] = {}
        for name in ("upload", "append", "overwrite", "upsert"):
            write: Route = getattr(self, name)
            alike = seen.setdefault((write.method, write.path, *sorted(write.headers.items())), name)
            if alike != name and not (write.carries("update_mode") and getattr(self, alike).carries("update_mode")):
                raise ValueError(f"{alike} and {name} share a route, so update_mode needs a place on both")
        return self

    @model_validator(mode="after")
    def _tell_where_a_page_says_more(self) -> Self:
        if self.page_layout == "lines" and (self.columns or not self.has_next_header):
            raise ValueError("with the page_layout lines, has_next_header is needed, and columns have no place")
        return self

    @model_validator(mode="after")
    def _tell_rows_and_columns_apart(self) -> Self:
        if self.row_layout == "columns" and not _side_by_side(self.rows_at, self.columns_at):
            raise ValueError(
                "with the row_layout columns, rows_at and columns_at are two places in one document, such as /rows and"
                " /columns"
            )
        return self

    @field_validator("headers", "put_headers")
    @classmethod
    def _check_headers(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        check_headers(given)
        return given

    @field_validator("error_kinds", "media_types", mode="before")
    @classmethod
    def _keep_the_others(cls, given: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default | given if isinstance(given, Mapping) else given

    @classmethod
    def from_setting(cls, setting: str | Mapping[str, Any] | None) -> Self:
        """Make the map from a connection's `wire` extra.

        Args:
            setting: A profile's name, or overrides by name, `profile` among them; None or empty for none.

        Raises:
            ValidationFailed: A name is unknown or a value does not fit; the text names it.
        """
        said = {"profile": setting} if isinstance(setting, str) else dict(setting or {})
        profile = said.pop("profile", "routes")
        if profile not in PROFILES:
            raise errors.ValidationFailed(f"wire map: {profile!r} is no profile; known: {', '.join(PROFILES)}")
        unknown = [name for name in said if name not in cls.model_fields]
        if unknown:
            known = ", ".join(("profile", *cls.model_fields))
            raise errors.ValidationFailed(f"wire map: unknown {', '.join(map(repr, unknown))}; known: {known}")
        try:
            return cls.model_validate({**PROFILES[profile], **said})
        except ValidationError as invalid:
            raise errors.ValidationFailed(f"wire map: {describe(invalid)}") from None

    @property
    def validation(self) -> tuple[int, ...]:
        """HTTP statuses of an invalid parameter."""
        plain = {status: kind for status, kind in self.error_kinds.items() if " " not in status}
        return tuple(int(status) for status, kind in plain.items() if kind == "validation")


def _side_by_side(one: str, other: str) -> bool:
    """Say whether two JSON pointers name values of which neither holds the other."""
    return not (f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"))


def _overridden(name: str, default: Route, given: Any) -> Route:
    if isinstance(given, Route):
        return given
    try:
        return default.overridden(given)
    except (TypeError, ValueError) as wrong:
        text = describe(wrong) if isinstance(wrong, ValidationError) else wrong
        raise ValueError(f"{name}: {text}") from None
