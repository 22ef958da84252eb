"""Training and validation documents, chosen by the hash of each document's id and by nothing else."""

import attrs

from library.documents import Corpus, Document
from library.sampling import rank
from marin_dsl import encodable, op


class EmptySplit(ValueError):
    """One side of a split would hold no document."""


@encodable
@attrs.frozen
class Split:
    """Two corpora that share no document."""

    train: Corpus
    validation: Corpus


@op
def split(corpus: Corpus, *, validation: float, salt: str = "validation") -> Split:
    """Divide a corpus by document.

    Where a document goes follows from its id and the salt: adding or removing others moves no document, and of two
    fractions the larger holds the validation documents of the smaller.

    Args:
        corpus: normalised documents, so that equal texts have equal ids and fall on the same side.
        validation: expected fraction of the *documents* (not bytes) that are held out, between 0 and 1.
        salt: another salt is another, independent split.

    Raises:
        ValueError: `validation` does not lie between 0 and 1.
        EmptySplit: a side holds no document.
    """
    if not 0 < validation < 1:
        raise ValueError(f"validation={validation}; expected a fraction between 0 and 1, such as 0.1")
    sides: dict[bool, list[Document]] = {False: [], True: []}
    for document in corpus.read():
        sides[is_held_out(document.id, validation, salt)].append(document)
    for held_out, side in ((False, "training"), (True, "validation")):
        if not sides[held_out]:
            raise EmptySplit(
                f"corpus {corpus.name!r}: the {side} side of {corpus.count} documents is empty at "
                f"validation={validation}, salt={salt!r}; use more documents, another fraction or another salt"
            )
    return Split(corpus.holding(sides[False]), corpus.holding(sides[True]))


def is_held_out(document_id: str, validation: float, salt: str = "validation") -> bool:
    """Whether `split` puts the document of this id on the validation side."""
    return rank(document_id, salt) < validation * 2**64
