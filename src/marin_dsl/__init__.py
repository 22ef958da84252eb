"""Marin DSL: experiments as immutable expressions.

An experiment is written as calls of operators, which build an expression; evaluating it gives values that are kept
under what they were made from, and that can be traced back to it.
"""

from marin_dsl.artifact import Directory, File
from marin_dsl.encoding import encodable
from marin_dsl.evaluation import evaluate, plan
from marin_dsl.expression import Expression
from marin_dsl.expression.choices import at_least, when
from marin_dsl.expression.inline import attempt
from marin_dsl.expression.tags import replicate, tagged
from marin_dsl.expression.waits import after
from marin_dsl.external import external
from marin_dsl.grids import grid
from marin_dsl.identity import digest
from marin_dsl.labels import recall
from marin_dsl.operator import op
from marin_dsl.operator.secret import secret
from marin_dsl.outcome import Failed, Ok, Skipped
from marin_dsl.store import Store
from marin_dsl.worker.context import context

__all__ = [
    "Directory",
    "Expression",
    "Failed",
    "File",
    "Ok",
    "Skipped",
    "Store",
    "after",
    "at_least",
    "attempt",
    "context",
    "digest",
    "encodable",
    "evaluate",
    "external",
    "grid",
    "op",
    "plan",
    "recall",
    "replicate",
    "secret",
    "tagged",
    "when",
]
