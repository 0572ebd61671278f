"""Names in logs of trainings: losses of the training, losses and scores of its evaluations.

Owns which names belong to an evaluation, and which other losses and scores a log has. A report
lists those that are not compared.
"""

import re
from functools import cache, lru_cache

MOST_NAMES = 4096
OF_EVALUATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev"})
"""Words of names that belong to evaluations."""
EVALUATION_WORD = r"(?:val|valid|validation|eval|evaluation|test|dev)"
SCORE = re.compile(
    "acc|accuracy|top1|top5|f1|precision|recall|auc|auroc|mcc|bleu|sacrebleu|chrf|rouge|rouge1"
    "|rouge2|rougel|meteor|wer|cer|ppl|perplexity|bpb|exact|map|map50|iou|miou|dice|psnr|ssim|fid"
    "|mse|rmse|mae|l1|l2|r2|pearson|spearmanr|matthews|score|reward|entropy|xent|nll|ce|ndcg|mrr"
    r"|\w{0,30}crossentropy|\w{0,30}perplexity|\w{0,30}accuracy"
)
"""Words of names of scores that evaluations give besides a loss."""
_LOSSES = {"loss", "logloss", "mlogloss"}
_NO_LOSS = OF_EVALUATION | {"scale", "scaler", "weight", "num", "std"}
_STATISTICS = {"epoch", "avg", "average", "mean", "max", "min", "median"}
_TRAINING = re.compile(r"(?<![a-z])(?:training|train|learn)(?![a-z])", re.IGNORECASE)


@lru_cache(maxsize=MOST_NAMES)
def is_evaluated(name: str) -> bool:
    """Return whether a column holds losses of evaluations.

    Such names are ``val_loss``, ``val/box_loss``, ``Validation Loss``, ``loss/val``,
    ``valid-logloss``.
    """
    words = _words(name)
    return bool(words & _LOSSES) and bool(words & OF_EVALUATION)


@lru_cache(maxsize=MOST_NAMES)
def is_score(name: str) -> bool:
    """Return whether a name is that of an evaluation's score: ``eval_accuracy``, or ``Val``."""
    words = _words(name) - {""}
    return bool(words & OF_EVALUATION) and (is_metric(name) or words <= OF_EVALUATION)


@lru_cache(maxsize=MOST_NAMES)
def is_metric(name: str) -> bool:
    """Return whether a name is that of a score, such as ``accuracy``, and no loss."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return any(map(SCORE.fullmatch, words)) and not words & _LOSSES


@lru_cache(maxsize=MOST_NAMES)
def is_loss(name: str) -> bool:
    """Return whether a name is that of a training's loss, or of a mean or maximum of it.

    Losses of an evaluation, and scales, are not.
    """
    words = _words(re.sub(r"loss(?![a-z])", " loss ", name.lower()))
    return "loss" in words and not words & _NO_LOSS


@lru_cache(maxsize=MOST_NAMES)
def is_statistic(name: str) -> bool:
    """Return whether a loss's name is that of a mean or maximum, such as ``global_max_loss``."""
    return bool(_words(name) & _STATISTICS)


@lru_cache(maxsize=MOST_NAMES)
def canonical(name: str) -> str:
    """Ignore case, spaces and dashes of a name: ``Training Loss`` is ``training_loss``."""
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


@cache
def counterpart(name: str) -> re.Pattern[str] | None:
    """Match the names that evaluations have for a training's loss; `None` without a word for it.

    ``train-rmse`` is ``eval-rmse`` there, and ``training's l2`` is ``valid_1's l2``.
    """
    if is_evaluated(name) or (word := _TRAINING.search(name)) is None:
        return None
    before, after = (re.escape(part) for part in (name[: word.start()], name[word.end() :]))
    return re.compile(
        rf"(?<![A-Za-z]){before}{EVALUATION_WORD}(?:_?\d{{1,2}})?{after}(?![A-Za-z])", re.IGNORECASE
    )


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", name.lower()))
