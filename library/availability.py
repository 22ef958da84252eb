"""Going on without what could not be had."""

from collections.abc import Mapping
from typing import Any

from marin_dsl import Failed, Ok, Skipped, context, op


class TooFewAvailable(Exception):
    """Fewer parts than needed have a value; the message says of each other part why it has none."""


@op
def available(parts: Mapping[str, Ok | Failed | Skipped], *, at_least: int) -> dict[str, Any]:
    """The values of those parts that have one, in the order of their names.

    Args:
        parts: the outcome of each part, from `attempt`.
        at_least: how many must have a value.

    Raises:
        TooFewAvailable: fewer do.
    """
    found = {name: part.value for name, part in sorted(parts.items()) if isinstance(part, Ok)}
    missing = {name: part.summary for name, part in sorted(parts.items()) if not isinstance(part, Ok)}
    for name, why in missing.items():
        context().log(f"going on without {name}: {why}")
    if len(found) < at_least:
        raise TooFewAvailable(
            f"{len(found)} of {len(parts)} parts have a value, and at least {at_least} are needed; "
            + "; ".join(f"{name}: {why}" for name, why in missing.items())
        )
    return found
