"""The accuracy metric of the embedded data, for `evaluate.load(<this folder or file>)`.

Owns plain accuracy, computed with numpy. evaluate copies this file on its own into its module cache
and finds the imports by a pattern over the lines, so it imports nothing of ci_bench and only one
module per line.
"""

import datasets
import evaluate
import numpy as np

DESCRIPTION = "The share of predictions that equal their reference."
INPUTS = (
    "predictions: predicted class ids. references: true class ids. Returns {'accuracy': float from"
    " 0 to 1}."
)
CITATION = ""


class Accuracy(evaluate.Metric):  # type: ignore[misc]  # evaluate ships no types
    """Plain accuracy over class ids."""

    def _info(self) -> evaluate.MetricInfo:
        label = datasets.Value("int32")
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": label, "references": label}),
        )

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        return {"accuracy": float(np.mean(np.asarray(predictions) == np.asarray(references)))}
