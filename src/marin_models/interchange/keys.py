"""Reading a checkpoint's config.json so that nothing in it is passed over in silence."""

from collections.abc import Iterable, Mapping
from typing import Any


class Inexpressible(ValueError):
    """A model or checkpoint has something that the other side has no word for."""


WITHOUT_EFFECT = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "marin_models",
        "max_position_embeddings",
        "model_type",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Keys that do not change what a trained model computes, or that are read elsewhere."""

LARGEST, MOST_LAYERS = 2**24, 2**12
"""More than any model has of anything, and of layers; what is larger would only fill the memory."""

_MISSING = object()


class Keys:
    """The keys of a config.json, each to be taken or required once; what is left over at the end is refused.

    Attributes:
        given: all of it.
        problems: what was found wrong so far.
    """

    def __init__(self, given: Mapping[str, Any], *, ignored: Iterable[str] = ()):
        self.given = given
        self._left = {key: value for key, value in given.items() if key not in WITHOUT_EFFECT.union(ignored)}
        self.problems: list[str] = []

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """The value of a key; ``default`` if it is absent or null; noted as a problem if it must be there."""
        value = self._left.pop(key, None)
        if value is not None:
            return value
        if default is _MISSING:
            self.problems.append(f"{key} is missing")
            return None
        return default

    def require(self, key: str, *possible: Any) -> None:
        """The key is absent, null, or one of ``possible``."""
        value = self._left.pop(key, None)
        if value is not None and value not in possible:
            self.refuse(key, value, f"only {' or '.join(map(repr, possible or (None,)))}")

    def check_counts(self, *names: str) -> None:
        """Raise at once where a key is there and is no number that a size can be.

        Raises:
            Inexpressible: naming all of them.
        """
        for key in names:
            value = self.given.get(key)
            most = MOST_LAYERS if key == "num_hidden_layers" else LARGEST
            if value is not None and (type(value) is not int or not 0 < value <= most):
                self.refuse(key, value, f"only integers from 1 to {most}")
        if self.problems:
            self._raise()

    def refuse(self, key: str, value: Any, possible: str) -> None:
        """Note that a value has no counterpart here."""
        self.problems.append(f"{key} is {value!r}; marin_models expresses {possible}")

    def finish(self) -> None:
        """Raise what was noted.

        Raises:
            Inexpressible: a key was missing, not possible or not known.
        """
        for key, value in self._left.items():
            if value is not None:
                self.problems.append(
                    f"{key} is {value!r}, and marin_models does not know this key; if it does not change what the "
                    f"model computes, import with ignore=[{key!r}]"
                )
        if self.problems:
            self._raise()

    def _raise(self) -> None:
        raise Inexpressible("this config.json cannot be imported:\n  " + "\n  ".join(self.problems))
