"""Why a model gave no answer: what its provider's library raises → a code that stays the same."""

from __future__ import annotations

from trunkline.errors import Unreachable

# By the names of the library's classes, the most special first: older versions have fewer of them.
_CLASSES = (
    ("ModelContextWindowExceededError", "context_length"),
    ("ModelAuthenticationError", "auth_failed"),
    ("ModelQuotaExceededError", "quota_exceeded"),
    ("ModelRateLimitError", "rate_limited"),
    ("ModelNotFoundError", "not_found"),
    ("ModelUnavailableError", "unavailable"),
    ("ModelTimeoutError", "timeout"),
    ("ModelRequestTimeout", "timeout"),
    ("ModelConnectionError", "unavailable"),
    ("ContentFilterError", "content_filtered"),
    # Of httpx2, where a library lets them through.
    ("TimeoutException", "timeout"),
    ("TransportError", "unavailable"),
)
_STATUSES = {
    400: "invalid_request",
    401: "auth_failed",
    402: "quota_exceeded",
    403: "auth_failed",
    404: "not_found",
    408: "timeout",
    413: "request_too_large",
    422: "invalid_request",
    429: "rate_limited",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
    529: "unavailable",
}
# Nothing of what the provider said: it may hold what is nobody's business.
WORDS = {
    "auth_failed": "the provider of the model does not accept the operator's key",
    "quota_exceeded": "the operator's account with the provider of the model is used up",
    "rate_limited": "the provider of the model takes no more requests for now",
    "context_length": "the conversation is longer than the model can read",
    "request_too_large": "the request is larger than the provider of the model takes",
    "not_found": "the provider does not have this model",
    "invalid_request": "the provider of the model refuses the request",
    "content_filtered": "the provider of the model held its answer back",
    "timeout": "the model did not answer in time",
    "unavailable": "the provider of the model cannot be reached now",
    "provider_error": "the model gave no answer that can be used",
    "limit_reached": "the model answers without an end",
}


def code_of(error: BaseException) -> str:
    """The code of a failed call of a model."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, Unreachable) and error.reason == "size":
        return "limit_reached"
    names = {one.__name__ for one in type(error).__mro__}
    for name, code in _CLASSES:
        if name in names:
            return code
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _STATUSES.get(status, "unavailable" if status >= 500 else "provider_error")
    return "provider_error"


def reason_of(code: str) -> str:
    """What a caller reads in the end of the task: the code, and what it means."""
    return f"{code}: {WORDS[code]}."
