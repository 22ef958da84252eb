"""Stopping a run that is lost."""

import numpy as np


class Diverged(Exception):
    """The loss left the region from which it could come back.

    Attributes:
        step: 1-based step at which the run was stopped.
        loss: of that step, nats per token.
        learning_rate: of that step.
        reason: what the guard saw.
    """

    def __init__(self, step: int, loss: float, learning_rate: float, reason: str):
        super().__init__(step, loss, learning_rate, reason)
        self.step, self.loss, self.learning_rate, self.reason = step, loss, learning_rate, reason

    def __str__(self) -> str:
        return (
            f"training diverged at step {self.step}: loss {self.loss:.4g} ({self.reason}) at learning rate "
            f"{self.learning_rate:.4g}; lower the learning rate, lengthen the warm-up or clip more"
        )


class DivergenceGuard:
    """Watches the losses of one run, chunk by chunk.

    Args:
        margin: nats above the first loss that count as diverging.
        patience: that many steps in a row above it, or skipped, raise; a loss that is not finite and was not skipped
            raises at once.
    """

    def __init__(self, margin: float, patience: int):
        self.margin, self.patience = margin, patience
        self._limit: float | None = None
        self._above = 0
        self._skipped = 0

    def look(
        self, first: int, losses: np.ndarray, learning_rates: np.ndarray, skipped: np.ndarray | None = None
    ) -> None:
        """Raise `Diverged` if the run is lost.

        Args:
            first: 0-based step of ``losses[0]``.
            losses: nats per token.
            learning_rates: of the same steps.
            skipped: which of them updated nothing; None: none.
        """
        skips = np.zeros(len(losses), bool) if skipped is None else skipped
        for offset, (loss, rate, skip) in enumerate(
            zip(losses.tolist(), learning_rates.tolist(), skips.tolist(), strict=True)
        ):
            reason = self._reason(loss, skip)
            if reason is not None:
                raise Diverged(first + offset + 1, loss, rate, reason)

    def _reason(self, loss: float, skipped: bool) -> str | None:
        """Why the run is lost at the next step that was looked at, if it is."""
        if skipped:
            self._skipped += 1
            return f"{self._skipped} steps skipped in a row" if self._skipped >= self.patience else None
        self._skipped = 0
        if not np.isfinite(loss):
            return "not finite"
        self._limit = loss + self.margin if self._limit is None else self._limit
        self._above = self._above + 1 if loss > self._limit else 0
        if self._above < self.patience:
            return None
        return f"above {self._limit:.4g}, the first loss plus {self.margin:g}, for {self._above} steps"
