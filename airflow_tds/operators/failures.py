"""Errors that end a task at once: what no retry can mend."""

from __future__ import annotations

from airflow_tds.client import errors
from airflow_tds.compat import AirflowFailException

__all__ = ["final"]


class FinalValidationFailed(errors.ValidationFailed, AirflowFailException):
    """`ValidationFailed` that ends the task at once: a retry would be refused as well."""


class FinalDifferentWrite(errors.DifferentWrite, AirflowFailException):
    """`DifferentWrite` that ends the task at once."""


class FinalConflict(errors.Conflict, AirflowFailException):
    """`Conflict` that ends the task at once: upload is the initial load only, §3.1."""


class FinalWireMismatch(errors.WireMismatch, AirflowFailException):
    """`WireMismatch` that ends the task at once: the connection must say another route."""


class FinalAmbiguousWriteError(errors.AmbiguousWriteError, AirflowFailException):
    """`AmbiguousWriteError` that ends the task at once: a person must look."""


_FINAL: dict[type[errors.TableServiceError], type[errors.TableServiceError]] = {
    errors.DifferentWrite: FinalDifferentWrite,
    errors.ValidationFailed: FinalValidationFailed,
    errors.Conflict: FinalConflict,
    errors.WireMismatch: FinalWireMismatch,
    errors.AmbiguousWriteError: FinalAmbiguousWriteError,
}


def final(error: errors.TableServiceError) -> errors.TableServiceError:
    """Give the form of an error that ends the task at once, if a retry could not help.

    Args:
        error: What went wrong.

    Returns:
        The same class, text and values as an `AirflowFailException`; the error itself if retries may help.
    """
    kind = _FINAL.get(type(error))
    if kind is None:
        return error
    ending = kind(*error.args)
    ending.__dict__.update(error.__dict__)
    return ending
