"""Wrong uses of the library's operators."""

from library import corpora
from library.availability import available
from library.baselines import byte_pair_counts, unigram_bits
from library.splitting import split
from library.token_store import tokenize
from library.tokenizers import train_bpe

source = corpora.python_source(limit_bytes="1000")  # E: Argument "limit_bytes" to "python_source"
split(source)  # E: Missing named argument "validation" for "split"
split(source, validaton=0.1)  # E: Unexpected keyword argument "validaton" for "split"; did you mean "validation"?
tokenizer = train_bpe({"code": source, "split": split(source, validation=0.1)}, vocabulary=9)  # E: "Expression[Split]"
tokenize(source, source)  # E: Argument 2 to "tokenize" has incompatible type "Expression[Corpus]"; expected "Tokenizer
tokenize(tokenizer, source)  # E: Argument 1 to "tokenize" has incompatible type "Expression[Tokenizer]"
unigram_bits(source, byte_pair_counts([source]))  # E: Argument 1 to "unigram_bits"
available({"code": source}, at_least=1)  # E: Dict entry 0 has incompatible type "str": "Expression[Corpus]"
