"""The tree of errors: it pickles, it can be rebuilt from names, and its drawing is true."""

import pickle
import re

import pytest

from airflow_tds.client import errors

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_pickling_with_all_that_it_knows(kind: type[errors.TableServiceError]) -> None:
    error = kind("what happened")
    error.__dict__.update(dict.fromkeys(error.__dict__, "kept"), outcome="done")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes

    assert (type(copy), str(copy), copy.__dict__) == (kind, "what happened", error.__dict__)


@pytest.mark.parametrize("status", [None, 401, 429, 500, 503])
@pytest.mark.parametrize("kind", [kind for kind in CLASSES if issubclass(kind, errors.Refused)])
def test_what_is_known_of_a_request_survives_pickling(kind: type[errors.Refused], status: int | None) -> None:
    error = kind("what happened", status=status)

    assert pickle.loads(pickle.dumps(error)).outcome == error.outcome  # noqa: S301  # our own bytes


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_is_rebuilt_from_its_name_and_text(kind: type[errors.TableServiceError]) -> None:
    rebuilt = errors.rebuild(kind.__name__, "what happened")

    assert (type(rebuilt), str(rebuilt), rebuilt.outcome) == (kind, "what happened", kind.outcome)


def test_a_name_that_is_no_error_of_ours_gives_the_base() -> None:
    assert type(errors.rebuild("SystemExit", "x")) is errors.TableServiceError


def test_subclasses_of_other_modules_are_not_rebuilt() -> None:
    class Foreign(errors.JobFailed):
        pass

    assert type(errors.rebuild("Foreign", "x")) is errors.TableServiceError


def test_the_tree_in_the_docstring_names_every_class_under_its_parent() -> None:
    drawing = (errors.__doc__ or "").split("Only exception classes")[0]

    for kind in CLASSES:
        assert re.search(rf"\b{kind.__name__}\b", drawing), kind
    drawn = set(re.findall(r"\b[A-Z]\w+(?=\b)", drawing)) & {name for name in dir(errors) if name[0].isupper()}
    assert drawn == {kind.__name__ for kind in CLASSES}


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("DifferentWrite", "ValidationFailed"),
        ("ValidationFailed", "Refused"),
        ("TableNotFound", "NotFound"),
        ("JobNotFound", "NotFound"),
        ("LengthRequired", "StorageRefused"),
        ("JobFailed", "JobError"),
        ("WaitTimedOut", "JobError"),
        ("Conflict", "Refused"),
        ("WireMismatch", "Refused"),
        ("ServerError", "Refused"),
    ],
)
def test_the_tree_is_as_drawn(child: str, parent: str) -> None:
    assert getattr(errors, child).__bases__[0] is getattr(errors, parent)


def test_callers_may_catch_by_the_builtin_kinds() -> None:
    assert issubclass(errors.WaitTimedOut, TimeoutError)
    assert issubclass(errors.ValidationFailed, ValueError)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.Stopped("x"), "not_sent"),
        (errors.TransportFailed("x"), "unknown"),
        (errors.TransportFailed("x", outcome="not_sent"), "not_sent"),
        (errors.UnexpectedReply("x"), "unknown"),
        (errors.ValidationFailed("x"), "not_sent"),
        (errors.ValidationFailed("x", status=422), "refused"),
        (errors.WireMismatch("x", status=405, operation="info"), "refused"),
        (errors.ServerError("x", status=500), "unknown"),
        (errors.ServerError("x", status=408, retry_after=1.0), "unknown"),
        (errors.ServerError("x", status=429), "refused"),
        (errors.ServerError("x", status=503), "unknown"),
        (errors.ServerError("x", status=503, retry_after=1.0), "refused"),
        (errors.JobFailed("x"), "done"),
        (errors.AmbiguousWriteError("x"), "unknown"),
    ],
)
def test_an_error_says_what_is_known_of_its_request(error: errors.TableServiceError, outcome: str) -> None:
    assert error.outcome == outcome
