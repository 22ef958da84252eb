"""One plan in a process of its own: a `Request` as JSON on standard input, its `Plan` as JSON on standard output.

The compilers take the environment of their process, and much memory, with them.
"""

import json
import sys

import attrs

from marin_models.pod_plan.plan import Request, plan


def main() -> int:
    """Exit status 2 with the reason on standard error when the request cannot be met."""
    try:
        found = plan(Request(**json.load(sys.stdin)))
    except (ValueError, TypeError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(attrs.asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
