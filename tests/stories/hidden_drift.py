"""Something far below a labelled result was changed, and whoever evaluates it again is told, down to the leaf.

Elsewhere: a fingerprint saw its inputs only by `name@version`, so that a change two labels below showed nowhere, and
what was built was not even compared. Here: drift is told through all dependencies, labelled ones too, down to the
changed leaf; the label stays until somebody moves it; the new recipe has its own key and its own value.
"""

import tempfile
from pathlib import Path

from marin_dsl import Store, evaluate, labels, op, recall
from marin_dsl.expression.annotations import Label

url = str(Path(tempfile.mkdtemp()) / "store")


@op(name="stories.clean", version="1")
def clean(corpus: str, minimum: int) -> list[str]:
    return [word for word in corpus.split() if len(word) >= minimum]


@op(name="stories.vocabulary", version="1")
def vocabulary(words: list) -> list[str]:
    return sorted(set(words))


@op(name="stories.model", version="1")
def model(words: list) -> dict:
    return {"size": len(words)}


def experiment(minimum: int):
    """Three labels over one another; the setting is at the bottom."""
    words = clean("to be or not to be that is the question", minimum=minimum).named("stories/words", f"{minimum}.0")
    return model(vocabulary(words).named("stories/vocabulary", f"{minimum}.0")).named("stories/model", "1.0")


if __name__ == "__main__":
    told = []

    def watch(event):
        if event["event"] == "drift":
            told.extend(event["lines"])

    assert evaluate(experiment(2), store=url, debug=True, watch=watch).value == {"size": 8}
    assert told == []

    outcome = evaluate(experiment(3), store=url, debug=True, watch=watch)
    assert outcome.value == {"size": 4}, "a stale value was served under the new recipe"
    print("drift:", *told)
    assert len(told) == 1, "the drift was hidden"
    assert told[0].endswith("minimum 2 → 3")

    # Everything is there already now, and it is told all the same.
    told.clear()
    evaluate(experiment(3), store=url, debug=True, watch=watch)
    assert any("minimum 2 → 3" in line for line in told), "the drift was hidden by what is built"

    entry = labels.current(Store(url), Label("stories/model", "1.0"))
    assert entry.recipe == experiment(2).key, "the label was moved by nobody"
    assert evaluate(recall("stories/model@1.0"), store=url, debug=True).value == {"size": 8}
    print("the label stands for what it stood for; the new recipe has its own value")

    evaluate(experiment(3), store=url, debug=True, drift="accept")
    assert evaluate(recall("stories/model@1.0"), store=url, debug=True).value == {"size": 4}
    print("accepted: now it stands for the new one, and its log has both")
    print("story told")
