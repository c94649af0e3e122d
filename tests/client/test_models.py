"""The values of §2: what is refused before it is sent, and what is read from a reply."""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse, FilterLeaf

LEAF = {"field": "a", "operator": "eq", "value": 1}


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        ({}, "table_id"),
        ({"table_id": ""}, "table_id"),
        ({"table_id": "t", "limit": 5}, "limit"),
        ({"table_id": "t", "format": "xml"}, "format"),
        ({"table_id": "t", "select": "a"}, "select"),
        ({"table_id": "t", "joins": [{"table_id": "u", "how": "outer"}]}, "how"),
        ({"table_id": "t", "joins": [{"table": "u"}]}, "table_id"),
        ({"table_id": "t", "filters": LEAF | {"operator": "like"}}, "operator"),
        ({"table_id": "t", "filters": LEAF | {"value": True}}, "value"),
        ({"table_id": "t", "filters": LEAF | {"value": None}}, "value"),
        ({"table_id": "t", "filters": LEAF | {"value": float("inf")}}, "value"),
        ({"table_id": "t", "filters": LEAF | {"value": float("nan")}}, "value"),
        ({"table_id": "t", "filters": {"type": "and", "predicates": [LEAF]}}, "predicates"),
        ({"table_id": "t", "filters": {"type": "not", "predicates": [LEAF, LEAF]}}, "type"),
        ({"table_id": "t", "filters": "a:eq:1"}, "filters"),
        ({"table_id": "t", "filters": [LEAF, LEAF]}, "filters"),
        ({"table_id": "t", "filters": 7}, "filters"),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_by_the_field_that_breaks_it(
    request_: dict[str, Any], where: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        CrossQueryRequest.model_validate(request_)

    assert any(where in error["loc"] for error in refused.value.errors())


@pytest.mark.parametrize(
    "filters",
    [
        LEAF,
        FilterLeaf(field="a", operator="eq", value=1),
        {"type": "or", "predicates": [LEAF, {"type": "and", "predicates": [LEAF, LEAF]}]},
    ],
)
def test_filters_may_be_mappings_or_models_nested_at_will(filters: Any) -> None:
    request = CrossQueryRequest.model_validate({"table_id": "t", "filters": filters})

    assert request.filters is not None


def test_any_mapping_is_a_request() -> None:
    assert CrossQueryRequest.model_validate(MappingProxyType({"table_id": "t"})).table_id == "t"


@pytest.mark.parametrize(
    ("document", "field", "value"),
    [
        ({"row_count": "12"}, "row_count", 12),
        ({"row_count": 0}, "row_count", 0),
        ({}, "row_count", None),
        ({"data_files": 3}, "data_files", 3),
        ({"data_files": ["a"]}, "data_files", ["a"]),
        ({"snapshot_id": 77}, "snapshot_id", "77"),
        ({"last_updated": "2026-01-02T03:04:05Z"}, "last_updated", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ({"last_updated": 1767323045}, "last_updated", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ({"last_updated": 1767323045000}, "last_updated", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ({"last_updated": "1767323045"}, "last_updated", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_statistics_are_read_in_the_forms_that_services_use(document: Any, field: str, value: Any) -> None:
    assert getattr(DatasetInfoResponse.model_validate(document), field) == value


def test_fields_that_the_interface_does_not_show_are_kept() -> None:
    job = DataJobResponse.model_validate({"status": "COMPLETED", "rows": 7})

    assert (job.model_extra or {})["rows"] == 7
