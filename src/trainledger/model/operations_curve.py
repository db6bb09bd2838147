"""An activation function with parameters of its own (Apertus)."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class TrainedCurve:
    """xIELU: a parabola for what is positive, an exponential curve for the rest, each with a trained factor of one
    element, before softplus."""

    positive: Weight
    negative: Weight

    @property
    def weights(self) -> tuple[Weight, Weight]:
        """Its parameters in order."""
        return (self.positive, self.negative)
