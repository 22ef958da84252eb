"""Correct uses: the type checker has nothing to say."""

from typing import Any, Literal, assert_type

from marin_dsl import (
    Expression,
    Failed,
    Ok,
    Skipped,
    after,
    at_least,
    attempt,
    evaluate,
    external,
    grid,
    recall,
    replicate,
    tagged,
    when,
)
from marin_dsl.grids import Grid
from tests.marin_dsl.typed_programs.operators import (
    Corpus,
    Model,
    Tokenizer,
    anything,
    collect,
    compare,
    concatenate,
    countdown,
    first,
    mix,
    pair,
    read,
    steps,
    table,
    train,
    train_tokenizer,
)

# Calls give expressions of the result's type; a value or an expression stands for a parameter.
corpus = read("speeches")
assert_type(corpus, Expression[Corpus])
assert_type(read.function("speeches"), Corpus)
assert_type(train_tokenizer(corpus), Expression[Tokenizer])
tokenizer = train_tokenizer(Corpus("plays"), size=512)
model = train(corpus, tokenizer, lr=0.1)
assert_type(model, Expression[Model])
train(corpus=Corpus("a"), tokenizer=Tokenizer(1), lr=1, seed=steps(), optimizer="muon")
train(corpus, tokenizer, lr=steps())
settings: dict[str, Any] = {"lr": 0.1}
train(corpus, tokenizer, **settings)

# Containers hold values, expressions, or both, and may be expressions themselves.
mix([corpus, Corpus("b")], {"a": 0.5, "b": model.field("loss")})
mix([Corpus("b")], {"a": 0.5})
corpora = [read(name) for name in ("a", "b")]
mix(corpora, dict.fromkeys("ab", 0.5))
plain: list[Corpus] = [Corpus("a")]
weights: dict[str, float] = {"a": 1}
mix(plain, weights)
mix(anything(1, []).field("corpora"), weights)
compare([model, Model(1.0)], {"all": [model], "none": []})
compare((model,), {"all": anything(1, []).field("list")})
compare([], None)
kinds: tuple[Literal["a", "b"], ...] = ("a", "b")
compare([], {kind: [model] for kind in kinds})
pair((corpus, Tokenizer(2)))
anything([model, {"x": corpus}], [model, 1])
concatenate(corpus, Corpus("b"), c=corpus, d=Corpus("d"))

# The language's own constructs keep types.
assert_type(attempt(model), Expression[Ok[Model] | Failed | Skipped])
collect([attempt(model), attempt(train(corpus, tokenizer, lr=0.2))])
assert_type(model.field("loss"), Expression[Any])
assert_type(model.named("model", "1.0").with_(title="a model"), Expression[Model])
total = 0.5 * model.field("loss") + 1 - model.field("loss") ** 2
assert_type(-total < model["loss"], Expression[Any])
assert_type(countdown(3), Expression[int])
assert_type(first([corpus]), Expression[Any])
assert_type(first([Corpus("a")]), Expression[Any])
runs = grid(lr=[0.1, 0.2], seed=range(3))(lambda lr, seed: train(corpus, tokenizer, lr=lr, seed=seed))
assert_type(runs, Grid[Expression[Model]])
table(runs)
table(runs.where(seed=0))
anything(0, runs)
assert_type(runs.map(attempt), Grid[Expression[Ok[Model] | Failed | Skipped]])

assert_type(when(model.field("loss") < 1, model, model), Expression[Model])
assert_type(when(True, model, corpus), Expression[Model | Corpus])
assert_type(when(model["good"], model, None), Expression[Model | None])
assert_type(model.recover(Model(1.0)), Expression[Model])
assert_type(model.recover(corpus), Expression[Model | Corpus])
assert_type(at_least(1, [model, model]), Expression[list[Model]])
assert_type(at_least(1, runs), Expression[list[Model]])
assert_type(after(model, corpus, tokenizer), Expression[Model])
assert_type(tagged(model, machine="a"), Expression[Model])
assert_type(replicate(model, 3), list[Expression[Model]])
assert_type(read.map(["a", "b"]), Expression[list[Corpus]])
assert_type(train.map([corpus, Corpus("a")], tokenizer=tokenizer, lr=0.1), Expression[list[Model]])
assert_type(train_tokenizer.map(read.map(["a", "b"]), size=4), Expression[list[Tokenizer]])
assert_type(countdown.map([1, 2]), Expression[list[int]])
train(read.map(["a"])[0], tokenizer, lr=0.1)
mix(read.map(["a"]), {})
anything(external("/data"), [external("memory://data", digest=64 * "0")])
train(recall("corpus@1.0"), tokenizer, lr=0.1)

# Evaluation gives outcomes of the type.
outcome = evaluate(model, store="memory://types", debug=True)
assert_type(outcome, Ok[Model] | Failed | Skipped)
if isinstance(outcome, Ok):
    assert_type(outcome.value, Model)
assert_type(evaluate(model).value, Model)
assert_type(evaluate(runs), tuple[Ok[Model] | Failed | Skipped, ...])
assert_type(evaluate(model, runs), tuple[Ok[Any] | Failed | Skipped, ...])
