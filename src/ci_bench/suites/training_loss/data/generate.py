"""Writes the embedded reviews and their tokenizer.

Run `python -m ci_bench.suites.training_loss.data.generate`.

Owns the file names, the sizes and the seed. The content is composition.py's and wordpiece.py's;
model/ and accuracy/ are written by hand. The committed files are this module's output, byte for
byte; only the standard library is used.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ci_bench.suites.training_loss.data.composition import Review, compose_reviews
from ci_bench.suites.training_loss.data.wordpiece import (
    build_vocabulary,
    tokenizer_config_document,
    tokenizer_document,
)

SEED = 20240
TRAIN_ROWS = 3000
TEST_ROWS = 1000


def generate_files() -> dict[str, str]:
    """Return the text of every generated file by its path relative to the data folder."""
    reviews = compose_reviews(seed=SEED, count=TRAIN_ROWS + TEST_ROWS)
    vocabulary = build_vocabulary(review.text for review in reviews[:TRAIN_ROWS])
    return {
        "reviews/train.jsonl": _json_lines(reviews[:TRAIN_ROWS]),
        "reviews/test.jsonl": _json_lines(reviews[TRAIN_ROWS:]),
        "tokenizer/tokenizer.json": _json_document(tokenizer_document(vocabulary)),
        "tokenizer/tokenizer_config.json": _json_document(tokenizer_config_document()),
    }


def _json_lines(reviews: Iterable[Review]) -> str:
    return "".join(
        json.dumps({"text": review.text, "label": review.label}) + "\n" for review in reviews
    )


def _json_document(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def write_files(files: Mapping[str, str], out: Path) -> None:
    """Write each text below `out` with LF line ends on every platform."""
    for name, text in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the files."""
    parser = argparse.ArgumentParser(description="Write the embedded reviews and their tokenizer.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="folder to write to (default: here)"
    )
    write_files(generate_files(), parser.parse_args(arguments).out)


if __name__ == "__main__":
    main()
