"""Only the rows that are needed are tokenised, from every kind of source, and every row is trained on."""

import json
from dataclasses import replace

import datasets
import pytest
import torch
import transformers
from training_loss_builders import start_of_model, write_model

from ci_bench.suites.training_loss.corpus import (
    BadData,
    Rows,
    _columns,
    batches,
    epoch_order,
    load_rows,
    prepare_rows,
)
from ci_bench.suites.training_loss.model_files import DATA, BadModel, expanded
from ci_bench.suites.training_loss.network import (
    build_model,
    check_ids,
    model_from,
    perturbed,
    start_state,
    state_digest,
    try_model,
)
from ci_bench.suites.training_loss.options import Dataset, Model, TrainingOptions

pytestmark = pytest.mark.engine

TABLE = {"text": ["good food", "bad food", "fine place"], "label": [4, 0, 2]}


def small(**changes):
    return TrainingOptions(**{"num_samples": 2, "evaluation_rows": 1, "max_length": 8, **changes})


def store(folder, kind, table=TABLE, name="rows"):
    """A file with the table, by the data set library's own writers."""
    made, path = datasets.Dataset.from_dict(table), str(folder / f"{name}.{kind}")
    writers = {"csv": made.to_csv, "jsonl": made.to_json, "parquet": made.to_parquet}
    writers[kind](path)
    return path


def prepared(folder, **dataset):
    prepare_rows(small(evaluation=False, dataset=Dataset(**dataset)), folder)
    return load_rows(folder, "train")


@pytest.fixture
def texts_seen(monkeypatch):
    """What the tokenizer is asked to tokenise."""
    seen = []
    load = transformers.AutoTokenizer.from_pretrained

    class Watched:
        def __init__(self, *args, **kwargs):
            self._tokenizer = load(*args, **kwargs)

        def __call__(self, texts, **options):
            seen.append(texts)
            return self._tokenizer(texts, **options)

        def __getattr__(self, name):
            return getattr(self._tokenizer, name)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", Watched)
    return seen


def test_only_the_rows_needed_are_tokenised(tmp_path, texts_seen):
    prepare_rows(small(num_samples=5, evaluation_rows=3), tmp_path)
    expected = [
        [
            json.loads(line)["text"]
            for line in (DATA / "reviews" / f"{split}.jsonl").read_text().splitlines()[:count]
        ]
        for split, count in (("train", 5), ("test", 3))
    ]
    assert texts_seen == expected


def test_the_test_split_is_left_alone_without_evaluation(tmp_path, texts_seen):
    prepare_rows(small(evaluation=False), tmp_path)
    assert [len(texts) for texts in texts_seen] == [2]
    assert not (tmp_path / "test.safetensors").exists()


def test_rows_have_one_length_and_labels_of_their_own(tmp_path):
    prepare_rows(small(num_samples=5), tmp_path)
    rows = load_rows(tmp_path, "train")
    assert set(rows.inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert {tuple(values.shape) for values in rows.inputs.values()} == {(5, 8)}
    assert (rows.labels.dtype, rows.labels.shape, len(rows)) == (torch.int64, (5,), 5)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_the_first_rows_of_a_local_file_are_taken(kind, tmp_path):
    rows = prepared(tmp_path, files={"train": store(tmp_path, kind)})
    assert rows.labels.tolist() == TABLE["label"][:2]


def test_files_win_over_a_path(tmp_path):
    rows = prepared(tmp_path, path="owner/never-asked", files={"train": store(tmp_path, "csv")})
    assert rows.labels.tolist() == [4, 0]


def test_a_local_folder_is_a_data_set_with_splits(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    store(folder, "csv", name="train")
    store(folder, "csv", {"text": ["so so"], "label": [3]}, name="test")
    prepare_rows(small(dataset=Dataset(path=str(folder))), tmp_path)
    assert load_rows(tmp_path, "train").labels.tolist() == [4, 0]
    assert load_rows(tmp_path, "test").labels.tolist() == [3]


def test_a_split_and_columns_by_other_names(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    store(folder, "csv", {"review": ["a", "b"], "stars": [1, 2]}, name="validation")
    rows = prepared(
        tmp_path,
        path=str(folder),
        train_split="validation",
        text_column="review",
        label_column="stars",
    )
    assert rows.labels.tolist() == [1, 2]


def test_more_rows_than_there_are_is_all_of_them(tmp_path):
    path = store(tmp_path, "csv")
    prepare_rows(
        small(num_samples=99, evaluation=False, dataset=Dataset(files={"train": path})), tmp_path
    )
    assert len(load_rows(tmp_path, "train")) == 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"text": ["a", "b"], "label": [0, 5]},
            r"dataset\.num_labels: labels run from 0 to 5 .*num_labels is 5",
        ),
        ({"text": ["a", "b"], "label": [-1, 2]}, r"dataset\.num_labels: labels run from -1 to 2"),
        (
            {"review": ["a"], "label": [0]},
            r"dataset\.text_column: no column 'text' in the train split.*it has review, label",
        ),
        (
            {"text": ["a"], "stars": [0]},
            r"dataset\.label_column: no column 'label' in .*it has text, stars",
        ),
        (
            {"text": ["a", "b"], "label": ["1 star", "2 stars"]},
            r"dataset\.label_column: 'label' holds '1 star' in row 0",
        ),
        (
            {"text": ["a", "b"], "label": [1.0, 2.5]},
            r"dataset\.label_column: 'label' holds 1\.0 in row 0",
        ),
        (
            {"text": ["a", None], "label": [1, 2]},
            r"dataset\.text_column: 'text' holds None in row 1 .*where str is needed",
        ),
        (
            {"text": [], "label": []},
            r"dataset: the train split of .*rows\.parquet cannot be read: .*no data",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(table, message, tmp_path):
    with pytest.raises(BadData, match=message):
        prepared(tmp_path, files={"train": store(tmp_path, "parquet", table)})


def test_an_empty_split_is_named():
    empty = datasets.Dataset.from_dict({"text": [], "label": []})
    with pytest.raises(BadData, match=r"dataset: the test split of embedded has no rows"):
        _columns(Dataset(), "test", empty)


def test_an_unknown_split_is_named_with_those_there_are(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    store(folder, "csv", name="train")
    with pytest.raises(
        BadData, match=r"dataset: the train split of .* cannot be read: .*validation.*train"
    ):
        prepared(tmp_path, path=str(folder), train_split="validation")


def test_a_bad_row_that_is_not_needed_is_no_matter(tmp_path):
    table = {"text": ["a", "b", "c"], "label": [0, 1, 99]}
    assert prepared(
        tmp_path, files={"train": store(tmp_path, "parquet", table)}
    ).labels.tolist() == [0, 1]


def test_a_missing_file_option_is_named(tmp_path):
    with pytest.raises(BadData, match=r"dataset\.files\.test: .*set evaluation: false"):
        prepare_rows(small(dataset=Dataset(files={"train": store(tmp_path, "csv")})), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.jsonl", "", r"the train split of .*rows\.jsonl cannot be read: it is empty"),
        ("rows.csv", "", r"the train split of .*rows\.csv cannot be read: No columns to parse"),
        ("rows.jsonl", '{"text": "a", "label"', r"rows\.jsonl cannot be read: .*JSON parse error"),
        ("rows.parquet", "", r"the train split of .*rows\.parquet cannot be read: Parquet"),
    ],
)
def test_an_unreadable_file_is_named(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadData, match=message):
        prepared(tmp_path, files={"train": str(tmp_path / name)})


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"files": {"train": "./no.csv"}}, r"dataset\.files\.train: \./no\.csv does not exist"),
        ({"files": {"train": "./no*.csv"}}, r"the train split of \./no\*\.csv cannot be read: "),
        ({"path": "./nothere"}, r"dataset\.path: \./nothere does not exist; give its path"),
        ({"path": "owner/nothere"}, r"dataset: the train split of owner/nothere cannot be read: "),
    ],
)
def test_missing_data_is_named(dataset, message, tmp_path):
    with pytest.raises(BadData, match=message):
        prepared(tmp_path, **dataset)


def test_a_pattern_of_files_is_read(tmp_path):
    store(tmp_path, "csv", name="rows1")
    rows = prepared(tmp_path, files={"train": str(tmp_path / "rows*.csv")})
    assert rows.labels.tolist() == [4, 0]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("./nothere", r"model\.path: \./nothere is not a folder; give the folder"),
        ("owner/nothere", r"model\.path: owner/nothere cannot be read: .*\(check the spelling"),
    ],
)
def test_a_missing_model_is_named(path, message, tmp_path):
    with pytest.raises(BadModel, match=message):
        prepare_rows(small(evaluation=False, model=Model(path=path)), tmp_path)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("bert", r"knows 0 of \d+ tokens of the train split of embedded; add the"),
        ("roberta", r"knows 0 of 0 tokens of the train split"),
        ("t5", r"knows 0 of \d+ tokens of the train split"),
        ("gpt2", r"has no padding token; set `pad_token` in its tokenizer_config\.json"),
        ("llama", r"model\.path: .* cannot be read: .*\(check its files\)"),
    ],
)
def test_a_folder_without_a_tokenizer_is_refused(family, message, tmp_path):
    path = write_model(tmp_path / "bare", model_type=family)
    with pytest.raises(BadModel, match=message):
        prepare_rows(small(evaluation=False, model=Model(path=path)), tmp_path)


def test_texts_of_few_known_words_are_refused(tmp_path):
    foreign = store(tmp_path, "csv", {"text": ["日本語のレビュー", "店"], "label": [0, 1]})
    with pytest.raises(BadModel, match=r"model\.path: the tokenizer of embedded knows 0 of"):
        prepared(tmp_path, files={"train": foreign})


@pytest.mark.parametrize("texts", [["", " "], ["good food and service", "日本語"]])
def test_blank_texts_and_a_foreign_row_are_trained_on(texts, tmp_path):
    path = store(tmp_path, "parquet", {"text": texts, "label": [0, 1]})
    assert len(prepared(tmp_path, files={"train": path})) == 2


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.txt", "rows"])
def test_an_unknown_kind_of_file_is_named(name, tmp_path):
    with pytest.raises(
        BadData,
        match=rf"dataset\.files\.train: {name} is not one of \.jsonl, \.json, \.csv, \.parquet",
    ):
        prepared(tmp_path, files={"train": str(tmp_path / name)})


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    store(tmp_path, "csv")
    assert prepared(tmp_path, files={"train": "~/rows.csv"}).labels.tolist() == [4, 0]
    assert expanded("~/model") == str(tmp_path / "model")
    assert [expanded(path) for path in ("owner/model", "./model")] == ["owner/model", "./model"]


def test_the_smaller_last_batch_of_every_epoch_is_seen():
    rows = Rows(inputs={"input_ids": torch.arange(10)[:, None]}, labels=torch.arange(10))
    seen = list(batches(rows, batch_size=4, seed=3, epochs=3))
    assert [len(indices) for indices, _ in seen] == 3 * [4, 4, 2]
    for epoch in range(3):
        labels = torch.cat([batch["labels"] for _, batch in seen[3 * epoch : 3 * epoch + 3]])
        assert sorted(labels.tolist()) == list(range(10))
    for indices, batch in seen:
        assert batch["input_ids"][:, 0].tolist() == indices.tolist()


def test_the_order_depends_on_seed_and_epoch_alone():
    torch.manual_seed(1)
    one = epoch_order(100, seed=0, epoch=0)
    torch.manual_seed(2)
    assert torch.equal(epoch_order(100, seed=0, epoch=0), one)
    others = [epoch_order(100, seed=seed, epoch=epoch) for seed, epoch in ((0, 1), (1, 0), (1, 1))]
    orders = {tuple(order.tolist()) for order in (one, *others)}
    assert len(orders) == 4
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(100))}


def test_digests_change_with_any_value(bench):
    rows = bench.rows
    labels = rows.labels.clone()
    labels[-1] = (labels[-1] + 1) % 5
    assert rows.digest() == bench.rows.to("cpu").digest()
    assert replace(rows, labels=labels).digest() != rows.digest()
    assert (
        replace(
            rows, inputs={**rows.inputs, "input_ids": rows.inputs["input_ids"].roll(1)}
        ).digest()
        != rows.digest()
    )


def test_a_state_is_digested_by_name_and_bytes(bench):
    state = start_of_model(bench.options.model, 0)
    name = next(iter(state))
    with_count = {**state, "batches_tracked": torch.tensor(1)}
    changed = [
        {**state, name: state[name].nextafter(torch.tensor(9.0))},
        {("x" + key if key == name else key): value for key, value in state.items()},
        perturbed(state, epsilon=2.0**-24, seed=1),
        with_count,
        {**state, "batches_tracked": torch.tensor(2)},
    ]
    assert len({state_digest(other) for other in (state, *changed)}) == 1 + len(changed)
    assert state_digest(dict(reversed(state.items()))) == state_digest(state)


def test_a_model_from_its_configuration_follows_the_seed(bench):
    first, again, other = (
        state_digest(start_state(bench.options, seed=seed)) for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize("pretrained", [True, False])
def test_a_local_folder_with_saved_weights(pretrained, bench, tmp_path):
    saved = build_model(replace(bench.options, seed=0), seed=5)
    saved.save_pretrained(tmp_path / "saved")
    options = replace(
        bench.options, model=Model(path=str(tmp_path / "saved"), pretrained=pretrained)
    )
    loaded = start_state(options, seed=0)
    assert (state_digest(loaded) == state_digest(saved.state_dict())) is pretrained
    model = model_from(options, loaded, "cpu")
    assert model.training
    assert state_digest(model.state_dict()) == state_digest(loaded)


def test_a_fresh_head_on_saved_weights_follows_the_seed(bench, tmp_path):
    body = build_model(bench.options, seed=5).base_model
    body.save_pretrained(tmp_path / "body")
    options = replace(bench.options, model=Model(path=str(tmp_path / "body")))
    one, again, other = (start_state(options, seed=seed) for seed in (0, 0, 1))
    assert state_digest(one) == state_digest(again)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert "classifier.weight" in differing
    assert all(name.startswith("classifier.") for name in differing)


def test_a_folder_without_weights_needs_pretrained_off(tmp_path, bench):
    options = replace(
        bench.options, model=Model(path=write_model(tmp_path / "bare"), pretrained=True)
    )
    with pytest.raises(OSError, match="no file named"):
        build_model(options, seed=0)
    with pytest.raises(BadModel, match=r"model\.path: .*set `model\.pretrained: false`"):
        try_model(options)


@pytest.mark.parametrize(
    ("family", "limit"),
    [({}, 40), ({"model_type": "roberta", "pad_token_id": 1}, 38), ({"model_type": "opt"}, 40)],
)
def test_longer_rows_than_positions_are_refused(family, limit, tmp_path, bench):
    path = write_model(tmp_path / "short", max_position_embeddings=40, **family)
    options = replace(bench.options, model=Model(path=path, pretrained=False))
    model, ids = try_model(options), torch.full((1, limit), 5)
    check_ids(options, model, ids)
    assert model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.shape == (1, 5)
    told = rf"max_length: rows of {limit + 1} tokens .*set `max_length: {limit}` or less"
    with pytest.raises(BadModel, match=told):
        check_ids(options, model, torch.full((1, limit + 1), 5))


def test_ids_beyond_the_vocabulary_are_refused(bench):
    model, ids = try_model(bench.options), torch.full((1, 4), 828)
    check_ids(bench.options, model, ids)
    with pytest.raises(BadModel, match=r"model\.path: the tokenizer gives id 829, and .* has 829"):
        check_ids(bench.options, model, ids + 1)


def test_rotary_positions_have_no_end(tmp_path, bench):
    path = write_model(tmp_path / "rotary", model_type="llama", max_position_embeddings=40)
    options = replace(bench.options, model=Model(path=path, pretrained=False))
    check_ids(options, try_model(options), torch.full((1, 4000), 5))
