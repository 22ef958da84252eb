"""Secrets among arguments: a reference is part of an expression, its text is known only where the operator runs."""

from __future__ import annotations

import contextvars
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.encoding import register_codec

SHORTEST = 4
"""Characters of the shortest text that is taken for a secret: shorter ones stand in any text by chance."""

_FORMS = re.compile(
    r"env://(?P<variable>[A-Za-z_][A-Za-z0-9_]*)"
    r"|file://(?P<path>/[^\0]*[^\0/])"
    r"|gcp-secret://(?P<project>[^/\s]+)/(?P<name>[^/\s]+)"
)


class SecretMissing(LookupError):
    """The text of a secret cannot be had in the worker; the message names the reference and what to do."""


def _check_reference(_: Any, __: Any, reference: str) -> None:
    if not isinstance(reference, str) or not _FORMS.fullmatch(reference):
        # What was given is not shown: it may be the secret itself.
        raise ValueError(
            "secret(...) takes where a secret is found, not the secret: 'env://NAME', 'file:///absolute/path' or "
            "'gcp-secret://project/name'"
        )


@attrs.frozen
class Secret:
    """Stands for a text that only the worker knows which runs the operator; operators receive the text.

    Attributes:
        reference: where the text is found; part of the identity of what it is an argument of.
    """

    reference: str = attrs.field(validator=_check_reference)

    def __repr__(self) -> str:
        return f"secret({self.reference!r})"


def secret(reference: str) -> Any:
    """A text that must not be written down, as an argument of an operator, also inside lists, dicts and classes.

    The reference is part of the identity of the call; the text is not. The worker that runs the operator looks it up
    immediately before the call, and the operator receives it as a `str`. Whatever the operator logs, raises, prints (if
    it is isolated) or reports has the reference in its place, and a result or an observation that holds the text is
    refused. What an operator that is not isolated prints goes to the terminal as it is.

    Args:
        reference: `env://NAME` (an environment variable), `file:///absolute/path` (a file; the end of the last line is
            no part of the secret) or `gcp-secret://project/name` (Google's Secret Manager, the latest version; needs
            the package `google-cloud-secret-manager`).

    Raises:
        ValueError: it is none of these.
    """
    return Secret(reference)


def text_of(reference: str) -> str:
    """The text that a reference stands for, here.

    Raises:
        SecretMissing: there is none; the message names the reference and what to do, and never the text.
    """
    matched = _FORMS.fullmatch(reference)
    if matched is None:
        raise SecretMissing(f"secret {reference!r} is of no kind that this version of Marin DSL knows")
    if matched["variable"]:
        text = _of_variable(reference, matched["variable"])
    elif matched["path"]:
        text = _of_file(reference, Path(matched["path"]))
    else:
        text = _of_manager(reference, matched["project"], matched["name"])
    if len(text) < SHORTEST:
        raise SecretMissing(
            f"secret {reference!r} has {len(text)} characters; at least {SHORTEST} are needed, since it could not be "
            "told from other text"
        )
    return text


def _of_variable(reference: str, name: str) -> str:
    text = os.environ.get(name)
    if text is None:
        raise SecretMissing(
            f"secret {reference!r}: the environment variable {name} is not set in the worker; set it where workers "
            f"are started (export {name}=...)"
        )
    return _utf8(reference, os.fsencode(text))


def _of_file(reference: str, path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SecretMissing(
            f"secret {reference!r}: the worker cannot read {path} ({error.strerror}); put the secret there, readable "
            "to the user that workers run as"
        ) from None
    return _utf8(reference, data).rstrip("\r\n")


def _of_manager(reference: str, project: str, name: str) -> str:
    try:
        from google.cloud import secretmanager
    except Exception:  # other packages share the name `google`, and half an installation fails in many ways
        raise SecretMissing(
            f"secret {reference!r}: the worker has no client of Google's Secret Manager; install the package "
            "google-cloud-secret-manager there"
        ) from None
    try:
        client = secretmanager.SecretManagerServiceClient()
        answer = client.access_secret_version(name=f"projects/{project}/secrets/{name}/versions/latest")
    except Exception as error:
        raise SecretMissing(
            f"secret {reference!r}: Google's Secret Manager does not give it ({type(error).__name__}: {error}); see "
            "whether it exists and whether the account that workers run as may read it"
        ) from None
    return _utf8(reference, answer.payload.data)


def _utf8(reference: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SecretMissing(f"secret {reference!r} is not UTF-8 text; encode it (base64, say)") from None


# Decoding knows nothing of secrets: while arguments are decoded for a call, this says what stands for each of them.
_REVEALED: contextvars.ContextVar[Callable[[str], str] | None] = contextvars.ContextVar("marin_secrets", default=None)


class revealed:  # noqa: N801 - it stands after `with`, for each call: a generator would take longer than many of them
    """Decode secrets as their texts."""

    __slots__ = ("_reveal", "_token")

    def __init__(self, reveal: Callable[[str], str]) -> None:
        self._reveal = reveal

    def __enter__(self) -> None:
        self._token = _REVEALED.set(self._reveal)

    def __exit__(self, *_: object) -> None:
        _REVEALED.reset(self._token)


def _from_fields(fields: Mapping[str, Any]) -> Secret | str:
    reveal = _REVEALED.get()
    return Secret(fields["reference"]) if reveal is None else reveal(fields["reference"])


register_codec(
    Secret,
    name="marin:Secret",
    to_fields=lambda value: {"reference": value.reference},
    from_fields=_from_fields,
)
