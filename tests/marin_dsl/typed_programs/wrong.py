"""Wrong uses: on each marked line the type checker reports an error that holds the marked words."""

from typing import assert_type

from marin_dsl import after, at_least, attempt, evaluate, grid, when
from tests.marin_dsl.typed_programs.operators import (
    Corpus,
    Model,
    Tokenizer,
    collect,
    compare,
    concatenate,
    count,
    mix,
    pair,
    read,
    table,
    train,
    train_tokenizer,
)

corpus = read("speeches")
tokenizer = train_tokenizer(corpus)
model = train(corpus, tokenizer, lr=0.1)

read(1)  # E: Argument 1 to "read" has incompatible type "int"; expected "str | Expression[str]"
train(corpus, tokenizer, lr="x")  # E: Argument "lr" to "train" has incompatible type "str"; expected "float |
train(corpus, tokenizer, lr=corpus)  # E: Argument "lr" to "train" has incompatible type "Expression[Corpus]"
train(corpus, tokenizer, lr=0.1, sed=1)  # E: Unexpected keyword argument "sed" for "train"; did you mean "seed"?
train(corpus, tokenizer)  # E: Missing named argument "lr" for "train"
train(corpus, lr=0.1)  # E: Missing positional argument "tokenizer" in call to "train"
train(corpus, tokenizer, 0.1)  # E: Too many positional arguments for "train"
train(corpus, corpus, lr=0.1)  # E: Argument 2 to "train" has incompatible type "Expression[Corpus]"
train(corpus, Corpus("a"), lr=0.1)  # E: Argument 2 to "train" has incompatible type "Corpus"
train(corpus, tokenizer, lr=0.1, optimizer="mun")  # E: Argument "optimizer" to "train" has incompatible type
mix([corpus, tokenizer], {})  # E: List item 1 has incompatible type "Expression[Tokenizer]"
mix([corpus], {"a": "b"})  # E: Dict entry 0 has incompatible type "str": "str"
mix([corpus], {1: 0.5})  # E: Dict entry 0 has incompatible type "int": "float"
mix((corpus,), {})  # E: Argument 1 to "mix" has incompatible type "tuple[Expression[Corpus]]"
mix(corpus, {})  # E: Argument 1 to "mix" has incompatible type "Expression[Corpus]"
corpora = [read("a")]
compare(corpora)  # E: Argument 1 to "compare" has incompatible type "list[Expression[Corpus]]"
compare([model], {"a": [corpus]})  # E: List item 0 has incompatible type "Expression[Corpus]"
pair((tokenizer, corpus))  # E: Argument 1 to "pair" has incompatible type
concatenate(corpus, tokenizer)  # E: Argument 2 to "concatenate" has incompatible type "Expression[Tokenizer]"
concatenate(a=model)  # E: Argument "a" to "concatenate" has incompatible type "Expression[Model]"
collect([attempt(corpus)])  # E: Argument 1 to "attempt" has incompatible type "Expression[Corpus]"
table(grid(name=["a"])(lambda name: read(name)))  # E: got "Expression[Corpus]", expected "Model | Expression[Model]"
assert_type(train(corpus, tokenizer, lr=0.1), Model)  # E: Expression is of type "Expression[Model]", not "Model"
attempt(Tokenizer(1))  # E: Argument 1 to "attempt" has incompatible type "Tokenizer"
read.map([1])  # E: List item 0 has incompatible type "int"; expected "str | Expression[str]"
read.map(corpora)  # E: Argument 1 to "map" has incompatible type "list[Expression[Corpus]]"
read.map(["a"], size=3)  # E: Unexpected keyword argument "size" for "map"
train.map([corpus], tokenizer=corpus, lr=0.1)  # E: Argument "tokenizer" to "map" has incompatible type
train(read.map(["a"]), tokenizer, lr=0.1)  # E: Argument 1 to "train" has incompatible type "Expression[list[Corpus]]"
train(model.recover(corpus), tokenizer, lr=0.1)  # E: Argument 1 to "train" has incompatible type
train(when(True, model, model), tokenizer, lr=0.1)  # E: incompatible type "Expression[Model]"
train(after(model, corpus), tokenizer, lr=0.1)  # E: Argument 1 to "after" has incompatible type "Expression[Model]"
when("yes", model, model)  # E: No overload variant of "when" matches
at_least("1", [model])  # E: Argument 1 to "at_least" has incompatible type "str"; expected "int"
at_least(1, [1.0])  # E: Argument 2 to "at_least" has incompatible type "list[float]"
loss = evaluate(model).value.los  # E: "Model" has no attribute "los"; maybe "loss"?
evaluate(model, wrokers=2)  # E: wrokers
loss = model.loss  # E: "Expression[Model]" has no attribute
length = len(model)  # E: incompatible type "Expression[Model]"
for part in model:  # E: "Expression[Model]" has no attribute "__iter__"
    print(part)
count(corpus)  # E: Argument 1 to "count" has incompatible type "Expression[Corpus]"; expected "Iterable[str
