"""What is read out of obstore's texts: status, code and words of the store. The texts are obstore's own."""

from __future__ import annotations

import pytest

from delta_log.storage.objects.store_answer import StoreAnswer

_BODY = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access &amp; more\n  Denied.</Message>'
    "<Key>a: b</Key></Error>"
)
_DETAILS = '\n\nDebug source:\nGeneric {\n    store: "S3",\n    status: 599, code <Code>Other</Code>\n}'


def answer(text: str) -> StoreAnswer:
    return StoreAnswer.of(OSError(text + _DETAILS))


def test_a_refusal_has_its_status_and_the_words_of_the_store() -> None:
    found = answer(
        "The operation lacked the necessary privileges to complete for path a: Error performing GET http://h/b/a in 4ms - Server "
        f"returned non-2xx status code: 403 Forbidden: {_BODY}"
    )
    assert (found.method, found.status, found.code) == ("GET", 403, "AccessDenied")
    assert found.message == "Access & more Denied."
    assert found.field("Key") == "a: b"
    assert (found.field("Region"), found.is_refusal, found.has_no_reason) == ("", True, False)


def test_a_question_for_an_object_is_refused_without_a_reason() -> None:
    found = answer(
        "… Error performing HEAD http://h/b/a in 887µs - Server returned non-2xx status code: 403 Forbidden: "
    )
    assert (found.method, found.status, found.code, found.has_no_reason) == ("HEAD", 403, "", True)
    assert found.message == found.said


@pytest.mark.parametrize(
    ("text", "status", "may_be_lost", "is_busy"),
    [
        ("Error performing PUT http://h/a in 1s, after 4 retries, max_retries: 4 - HTTP error: error sending request", 0, True, False),
        ("Error performing PUT http://h/a in 1s - Server returned non-2xx status code: 503 Service Unavailable: ", 503, True, False),
        ("Error performing PUT http://h/a in 1s - Server returned non-2xx status code: 429 Too Many Requests: x", 429, False, True),
        ("Error performing GET http://h/a in 1s - Received redirect without LOCATION, this normally indicates", 301, False, False),
        ("Error performing POST http://h/a in 1s - Server returned error response: <Error><Code>InternalError</Code></Error>", 200, False, False),
        ('Failed to parse value for CONTENT_RANGE header: "bytes 0--1/0"', 0, True, False),
    ],
)  # fmt: skip
def test_what_may_have_taken_effect_is_told_from_what_was_put_off(
    text: str, status: int, may_be_lost: bool, is_busy: bool
) -> None:
    found = answer(text)
    assert (found.status, found.may_be_lost, found.is_busy) == (status, may_be_lost, is_busy)
    assert "Debug" not in found.said


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 0), ("404", 404)], ids=["of S3", "of Azure"])
def test_an_object_that_was_not_deleted_is_named(code: str, status: int) -> None:
    found = answer(f"Generic error: Bulk delete request failed for key a/b: c: not (allowed). (code: {code})")
    assert (found.key, found.code, found.status, found.method) == ("a/b", code, status, "DELETE")
    assert found.said == f"{code}: c: not (allowed)."


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (
            'HttpError {\n kind: Connect, source: ConnectError( "tcp connect error", Os { code: 111, message: "Connection refused" } ) }',
            "tcp connect error: Connection refused",
        ),
        (
            "HttpError { kind: Timeout, source: reqwest::Error { kind: Request, source: TimedOut, }, }",
            "Timeout",
        ),
        ('HttpError { kind: Request, url: "http://h/b?sig=secret" }', "Request"),
    ],
)
def test_without_an_answer_the_system_says_why(details: str, said: str) -> None:
    text = "Generic S3 error: Error performing GET http://h/b/a in 2s, after 4 retries, max_retries: 4 - HTTP error: error sending request"
    found = StoreAnswer.of(OSError(f"{text}\n\nDebug source:\nGeneric {{ {details} }}"))
    assert (found.said, found.method, found.status) == (said, "GET", 0)
