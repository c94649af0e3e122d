"""Errors that end a task at once: what no retry can mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_tds.client import errors
from airflow_tds.compat import AirflowFailException, BaseOperator

__all__ = ["final", "raising"]


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


class FinalJobFailed(errors.JobFailed, AirflowFailException):
    """`JobFailed` that ends a sensor at once: its job stays FAILED, and a retry would look at the same one."""


_FINAL: dict[type[errors.TableServiceError], type[errors.TableServiceError]] = {
    errors.DifferentWrite: FinalDifferentWrite,
    errors.ValidationFailed: FinalValidationFailed,
    errors.Conflict: FinalConflict,
    errors.WireMismatch: FinalWireMismatch,
    errors.AmbiguousWriteError: FinalAmbiguousWriteError,
}


def final(error: errors.TableServiceError, *, only_looks: bool = False) -> errors.TableServiceError:
    """Give the form of an error that ends the task at once, if a retry could not help.

    Args:
        error: What went wrong.
        only_looks: The task did not start the job, so that a retry can not start another.

    Returns:
        The same class, text and values as an `AirflowFailException`; the error itself if retries may help.
    """
    looked = only_looks and type(error) is errors.JobFailed
    kind = FinalJobFailed if looked else _FINAL.get(type(error))
    if kind is None:
        return error
    ending = kind(*error.args)
    ending.__dict__.update(error.__dict__)
    return ending


@contextmanager
def raising(task: BaseOperator, *, only_looks: bool = False) -> Iterator[None]:
    """Raise what no retry can mend so that Airflow does not retry, unless the task has a policy for that.

    Args:
        task: The task; a `retry_policy` of its own (Airflow 3.3) never sees an `AirflowFailException`.
        only_looks: See `final`.
    """
    try:
        yield
    except errors.TableServiceError as error:
        ending = error if getattr(task, "retry_policy", None) is not None else final(error, only_looks=only_looks)
        if ending is error:
            raise
        raise ending from error
