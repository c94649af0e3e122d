"""The connection's form for Airflow below 3.2, which asks the hook for it: the fields of provider_info.py, as widgets.

Later versions read provider_info.py itself, and this file goes when 3.1 goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["widgets"]

#: A flag that may be unset is a text here: a box to tick knows only two of three answers.
THREE_ANSWERS = ("failed_jobs_are_atomic",)


def widgets(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Make the widgets.

    Args:
        fields: Those of the provider info: label, description and JSON schema by name.

    Returns:
        A form field by name; empty where this Airflow has no forms of the old kind installed.
    """
    try:
        return {name: _widget(name, field) for name, field in fields.items()}
    except ImportError:
        return {}


def _widget(name: str, field: Mapping[str, Any]) -> Any:
    from flask_appbuilder.fieldwidgets import (  # type: ignore[import-not-found,unused-ignore]  # older Airflow has it
        BS3PasswordFieldWidget,
        BS3TextFieldWidget,
    )
    from wtforms import (  # type: ignore[import-untyped,import-not-found,unused-ignore]  # and this one
        BooleanField,
        PasswordField,
        StringField,
    )

    said = {"label": field["label"], "description": field["description"]}
    schema = field["schema"]
    if schema.get("format") == "password":
        return PasswordField(**said, widget=BS3PasswordFieldWidget())
    if "boolean" in schema["type"] and name not in THREE_ANSWERS:
        return BooleanField(**said, default=False)
    return StringField(**said, widget=BS3TextFieldWidget())  # seconds too: a number's field takes no fractions
