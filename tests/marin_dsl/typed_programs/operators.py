"""Operators for the programs beside this one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import attrs

from marin_dsl import Expression, Failed, File, Ok, Skipped, op
from marin_dsl.grids import Cell

T = TypeVar("T")


@attrs.frozen(eq=False)
class Corpus:
    name: str


@attrs.frozen
class Tokenizer:
    size: int


@attrs.frozen
class Model:
    loss: float


@op
def read(name: str) -> Corpus:
    return Corpus(name)


@op(version="1")
def train_tokenizer(corpus: Corpus, *, size: int = 256) -> Tokenizer:
    return Tokenizer(size)


@op(pin=["python"])
def train(
    corpus: Corpus, tokenizer: Tokenizer, *, lr: float, seed: int = 0, optimizer: Literal["adamw", "muon"] = "adamw"
) -> Model:
    return Model(lr)


@op
def mix(corpora: list[Corpus], weights: dict[str, float]) -> Corpus:
    return corpora[0]


@op
def compare(models: Sequence[Model], named: Mapping[str, Sequence[Model]] | None = None) -> str:
    return str(len(models))


@op
def pair(both: tuple[Corpus, Tokenizer]) -> int:
    return both[1].size


@op
def table(cells: Sequence[Cell[Model]]) -> dict[str, float]:
    return {}


@op
def collect(outcomes: list[Ok[Model] | Failed | Skipped]) -> int:
    return len(outcomes)


@op
def anything(value: Any, items: list) -> object:
    return value


@op
def concatenate(*corpora: Corpus, **named: Corpus) -> Corpus:
    return corpora[0]


@op
def first(items: Sequence[T]) -> T:
    return items[0]


@op
def countdown(n: int) -> int | Expression[int]:
    return countdown(n - 1) if n else 0


@op
def rate(file: File) -> float:
    return 0.1


@op
def count(words: Iterable[str]) -> int:
    return len(list(words))


@op
def steps() -> int:
    return 1
