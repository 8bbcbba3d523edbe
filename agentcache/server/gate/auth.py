"""API keys: ``Authorization: Bearer KEY``, or ``x-api-key: KEY`` as Anthropic's clients send it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request

from agentcache.server.errors import ApiError
from agentcache.settings import Settings

Guard = Callable[[Request], Awaitable[None]]


class Keys:
    """The keys of a server, and which of them are its operator's.

    Every key is compared with what was sent, always all of them and in constant time, so that timing tells nothing: not
    which key was nearly right, nor how long keys are (their digests are compared).
    """

    def __init__(self, settings: Settings) -> None:
        operators = settings.operator_keys()
        self.operated = bool(operators) or not settings.keyed
        """Whether anybody may see what is the operator's."""
        admins = [key.get_secret_value() for key in settings.admin_keys]
        self._known = [(key, _digest(key.encode()), key in operators) for key in (*settings.keys(), *admins)]

    def find(self, secret: bytes) -> tuple[str, bool] | None:
        """The key that ``secret`` is, and whether it is an operator's; ``None`` for any other secret."""
        digest = _digest(secret)
        found = [(key, operator) for key, known, operator in self._known if hmac.compare_digest(digest, known)]
        return found[0] if found else None

    @property
    def needed(self) -> bool:
        return bool(self._known)

    def admit(self, request: Request) -> tuple[str | None, bool]:
        """The key that ``request`` was sent with, and whether it is an operator's; an open server has no keys, only operators.

        Raises:
            ApiError: 401, it has no key of these, or two.
        """
        if not self.needed:
            return None, True
        sent = set(_sent(request))
        if len(sent) > 1:
            raise _refused("got two keys that differ, expected one, in authorization or in x-api-key")
        found = self.find(sent.pop()) if sent else None
        if found is None:
            raise _refused("expected 'Bearer' and a key that this server knows, or the key alone in x-api-key")
        return found


def require_key(keys: Keys) -> Guard:
    """A dependency that refuses requests without one of ``keys``; without keys the server is open.

    Sets ``request.state.api_key`` and ``request.state.operator``; read them with ``api_key`` and ``is_operator``.
    """

    async def check_key(request: Request) -> None:
        request.state.api_key, request.state.operator = keys.admit(request)

    return check_key


def require_operator(keys: Keys) -> Guard:
    """A dependency, after ``require_key``, of routes that show or change the whole server."""

    async def check_operator(request: Request) -> None:
        if is_operator(request):
            return
        why = "this key may not see or change the whole server: that takes a key given with --admin-key"
        if not keys.operated:
            why += ", and this server has several API keys and no --admin-key"
        raise ApiError(403, why, code="operator_key_needed")

    return check_operator


def api_key(request: Request) -> str | None:
    """The key the request was admitted with; none on an open server."""
    return getattr(request.state, "api_key", None)


def is_operator(request: Request) -> bool:
    """Whether the request may see what all keys do; everybody may on an open server."""
    return bool(getattr(request.state, "operator", False))


def _sent(request: Request) -> Sequence[bytes]:
    """The keys of a request, as the bytes that were sent; other schemes than Bearer belong to proxies in between."""
    bearers = [value.partition(" ") for value in request.headers.getlist("authorization")]
    secrets = [secret for scheme, _, secret in bearers if scheme.lower() == "bearer"]
    secrets += request.headers.getlist("x-api-key")
    return [secret.strip().encode("latin-1") for secret in secrets if secret.strip()]


def _refused(why: str) -> ApiError:
    headers = {"www-authenticate": "Bearer"}
    return ApiError(401, f"authorization: {why}", code="invalid_api_key", headers=headers)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
