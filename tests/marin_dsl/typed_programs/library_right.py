"""Correct uses of the library's operators."""

from typing import assert_type

import numpy as np

from library import corpora
from library.availability import available
from library.baselines import byte_pair_counts, unigram_bits
from library.documents import Corpus
from library.splitting import Split, split
from library.token_store import TokenStore, tokenize
from library.tokenizers import Tokenizer, byte_tokenizer, train_bpe
from marin_dsl import Expression, attempt

source = corpora.python_source(limit_bytes=1000)
assert_type(source, Expression[Corpus])
sides = split(source, validation=0.1)
assert_type(sides, Expression[Split])
tokenizer = train_bpe({"code": source, "manual": corpora.pydoc_topics()}, vocabulary=512)
assert_type(tokenizer, Expression[Tokenizer])
tokens = tokenize(sides.field("train"), tokenizer)
assert_type(tokens, Expression[TokenStore])
tokenize(source, byte_tokenizer())
counts = byte_pair_counts([source, corpora.pydoc_topics()])
assert_type(counts, Expression[np.ndarray])
unigram_bits(counts, source, alpha=0.5)
available({"code": attempt(source), "tokens": attempt(tokens)}, at_least=1)
