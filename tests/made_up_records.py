"""Records such as stores write, of calls that nobody has made."""

from marin_dsl.encoding import format_digest

_NOBODY = format_digest(bytes(32))


def made_up(title="f()"):
    """What records say of who made something, and how."""
    return {
        "call": _NOBODY, "title": title, "operator": {"name": "f", "version": "1", "code": _NOBODY}, "output": [],
        "provenance": {
            "run": "", "environment": "", "started": "", "ended": "", "seconds": 0.0, "peak_memory": 1, "host": "h",
            "pid": 1, "thread": "MainThread",
        },
    }  # fmt: skip


def result_record(stored, **more):
    """The record of a result that is stored somewhere."""
    return {**made_up(), "value": stored.as_record(), "observations": {}, "over_failure": False, **more}


def failure_record(message):
    """The record of an attempt that failed with a message."""
    failure = {"kind": "raised", "exception": "ValueError", "message": message, "traceback": "", "notes": []}
    return {**made_up(), "failure": failure}


def recipe_record(name):
    """The structure of an expression without arguments, of an operator with a name."""
    operator = {"name": name, "identity": _NOBODY, "inline": False, "version": "1", "code": _NOBODY}
    # A0 is the encoding of an empty dict.
    return {"operator": operator, "payload": ["oA=="], "references": [], "title": f"{name}()"}
