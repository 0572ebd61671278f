"""The embedded reviews, tokenizer, model configuration and metric agree with their generator and with each other."""

import json
import string
from collections import Counter
from pathlib import Path

import pytest

from ci_bench.suites.training_loss import data
from ci_bench.suites.training_loss.data import composition
from ci_bench.suites.training_loss.data.composition import (
    LABELS,
    Opinion,
    averages_to,
    compose_reviews,
)
from ci_bench.suites.training_loss.data.generate import generate_files, main
from ci_bench.suites.training_loss.data.wordpiece import SPECIAL_TOKENS, build_vocabulary

DATA = Path(str(data.__file__)).parent
ROWS = {"train": 3000, "test": 1000}
FOREIGN_TEXTS = (
    "",
    "   \n\t",
    "日本語のレビュー",
    "Très bon café, à bientôt ! 😀",
    "Отлично",
    "مطعم رائع",
    "x" * 500,
    "\x00\ufffd\u200b",
)


def read_rows(split: str) -> list[dict[str, object]]:
    lines = (DATA / "reviews" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_texts(split: str) -> list[str]:
    return [str(row["text"]) for row in read_rows(split)]


def read_tokens() -> dict[str, int]:
    tokens: dict[str, int] = json.loads((DATA / "tokenizer" / "tokenizer.json").read_text())[
        "model"
    ]["vocab"]
    return tokens


def generated_paths(folder: Path) -> list[Path]:
    found = [path for name in ("reviews", "tokenizer") for path in (folder / name).iterdir()]
    return sorted(path.relative_to(folder) for path in found if path.name != "README.md")


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(DATA / "tokenizer"))


def test_the_generator_writes_the_committed_files(tmp_path):
    main(["--out", str(tmp_path)])
    assert generated_paths(tmp_path) == generated_paths(DATA)
    for path in generated_paths(tmp_path):
        assert (tmp_path / path).read_bytes() == (DATA / path).read_bytes(), path


def test_the_generated_files_depend_on_the_seed(monkeypatch):
    monkeypatch.setattr("ci_bench.suites.training_loss.data.generate.SEED", 1)
    committed = (DATA / "reviews" / "train.jsonl").read_text(encoding="utf-8")
    assert generate_files()["reviews/train.jsonl"] != committed


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_row_is_a_text_and_a_label(split):
    rows = read_rows(split)
    assert len(rows) == ROWS[split]
    assert all(
        row.keys() == {"text", "label"} and row["text"] and row["label"] in range(LABELS)
        for row in rows
    )


def test_no_text_occurs_twice():
    texts = read_texts("train") + read_texts("test")
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("first", [5, 100, 1000])
def test_the_first_rows_hold_every_label_equally(split, first):
    labels = Counter(row["label"] for row in read_rows(split)[:first])
    assert labels == dict.fromkeys(range(LABELS), first // LABELS)


def test_composing_fewer_rows_gives_a_prefix():
    assert compose_reviews(seed=3, count=7) == compose_reviews(seed=3, count=12)[:7]


def test_another_seed_composes_other_reviews():
    assert set(compose_reviews(seed=3, count=20)).isdisjoint(compose_reviews(seed=4, count=20))


@pytest.mark.parametrize(
    ("main_grade", "other_grade", "grade", "close"),
    [
        (2, 2, 2, True),
        (2, 1, 2, True),  # mean 5/3: the main aspect counts twice
        (1, 2, 2, False),  # mean 4/3
        (1, 2, 1, True),
        (-2, 2, -1, True),
        (2, -2, 0, False),
        (0, 0, 0, True),
    ],
)
def test_the_weighted_mean_of_the_grades_decides_the_stars(main_grade, other_grade, grade, close):
    opinions = [
        Opinion(aspect=composition.FOOD, grade=main_grade),
        Opinion(aspect=composition.SERVICE, grade=other_grade),
    ]
    assert averages_to(opinions, grade) is close


@pytest.mark.parametrize(
    "aspect", [aspect for venue in composition.VENUES for aspect in (venue.main, *venue.others)]
)
def test_every_aspect_has_adjectives_of_every_grade(aspect):
    assert set(aspect.adjectives) == set(composition.GRADES)
    assert all(aspect.adjectives.values())


def test_the_vocabulary_is_small_and_starts_with_the_special_tokens():
    tokens = read_tokens()
    assert list(tokens)[: len(SPECIAL_TOKENS)] == list(SPECIAL_TOKENS)
    assert sorted(tokens.values()) == list(range(len(tokens)))
    assert len(tokens) < 2000


def test_any_ascii_word_can_be_split():
    tokens = set(build_vocabulary(["a"]))
    assert set(string.ascii_letters + string.digits + string.punctuation) <= tokens
    assert {f"##{character}" for character in string.ascii_letters + string.digits} <= tokens


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_tokenizer_knows_every_word_of_the_reviews(tokenizer, split):
    unknown = tokenizer.unk_token_id
    assert not any(unknown in ids for ids in tokenizer(read_texts(split))["input_ids"])


def test_the_tokenizer_is_a_fast_cased_bert_tokenizer(tokenizer):
    assert tokenizer.is_fast
    assert len(tokenizer) == len(read_tokens())
    assert tokenizer("The the")["input_ids"][1] != tokenizer("The the")["input_ids"][2]
    assert (
        tokenizer.decode(tokenizer("The food was superb.")["input_ids"])
        == "[CLS] The food was superb. [SEP]"
    )


def test_english_outside_the_reviews_has_no_unknown_token(tokenizer):
    text = "Xylophonist\u2019s \u201cquirky\u201d café: 20°C, £5 \u2013 or 6€ (10% off) for $7 & up\u2026"
    assert "[UNK]" not in tokenizer.tokenize(text)


@pytest.mark.parametrize("text", FOREIGN_TEXTS)
def test_foreign_text_passes_through_the_tokenizer(tokenizer, text):
    ids = tokenizer(text, padding="max_length", truncation=True, max_length=64)["input_ids"]
    assert len(ids) == 64
    assert isinstance(tokenizer.decode(ids), str)


def test_the_model_configuration_fits_the_tokenizer_and_the_labels():
    config = json.loads((DATA / "model" / "config.json").read_text())
    tokenizer_config = json.loads((DATA / "tokenizer" / "tokenizer_config.json").read_text())
    assert config["vocab_size"] == len(read_tokens())
    assert config["num_labels"] == LABELS
    assert config["pad_token_id"] == read_tokens()["[PAD]"]
    assert config["max_position_embeddings"] == tokenizer_config["model_max_length"]


def test_the_configuration_makes_a_classifier_of_five_classes(tokenizer):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(str(DATA / "model"))
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    batch = tokenizer(
        read_texts("test")[:2], padding="max_length", truncation=True, return_tensors="pt"
    )
    assert model(**batch).logits.shape == (2, LABELS)


def test_datasets_reads_the_reviews(tmp_path):
    datasets = pytest.importorskip("datasets")
    files = {split: str(DATA / "reviews" / f"{split}.jsonl") for split in ROWS}
    loaded = datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path))
    assert {split: loaded[split].num_rows for split in ROWS} == ROWS
    assert loaded["train"].column_names == ["text", "label"]


def test_evaluate_loads_the_accuracy(tmp_path):
    evaluate = pytest.importorskip("evaluate")
    metric = evaluate.load(str(DATA / "accuracy"), cache_dir=str(tmp_path), keep_in_memory=True)
    metric.add_batch(predictions=[0, 1], references=[0, 2])
    metric.add_batch(predictions=[3, 4], references=[3, 4])
    assert metric.compute() == {"accuracy": 0.75}
