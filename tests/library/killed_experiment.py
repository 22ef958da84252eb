"""An experiment whose training is killed in the middle."""

import json
import sys

from library import training
from library.documents import Document, write_corpus
from library.token_store import tokenize
from library.tokenizers import byte_tokenizer
from marin_dsl import Store, evaluate, lineage, provenance
from marin_dsl.encoding import encode_with_leaves
from marin_models import OptimizerConfig, TrainingConfig, TransformerConfig

MODEL = TransformerConfig(vocabulary=257, width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16)
OPTIMIZER = OptimizerConfig("adamw", learning_rate=0.01)
TRAINING = TrainingConfig(steps=1500, batch=4, length=16, seed=3, rows="documents", evaluate_every=700)


def stores():
    texts = ["one two three four five six seven eight nine ten " * (1 + n % 5) + str(n) for n in range(40)]
    documents = [Document.of(text, f"text/{number:03}") for number, text in enumerate(texts)]
    corpus = write_corpus(documents, name="words", licence="CC0-1.0", attribution="nobody")
    return {"words": tokenize.function(corpus, byte_tokenizer.function())}


def experiment(found):
    return training.train(
        found, {"words": 1.0}, model=MODEL, optimizer=OPTIMIZER, training=TRAINING, held_out=dict(found)
    )


if __name__ == "__main__":
    provenance.environment = lambda project: {"python": "3"}  # it takes longer than the work
    training.CHECKPOINT_SECONDS = 0.0
    place = sys.argv[1]
    expression = experiment(stores())
    value = evaluate(expression, store=place, debug=True).value
    store = Store(place)
    record = lineage.ancestors(store, expression.key)[expression.key]
    observed = {name: record.observation(store, name) for name in ("resumed", "tokens_per_second")}
    print(json.dumps({"digest": encode_with_leaves(value).digest.hex(), **observed}))
