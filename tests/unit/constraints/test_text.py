"""Sentences, encoders, and the file of text vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from lw2g.errors import ConfigError, DataError
from lw2g.pixels.text_vectors import class_sentence, read_text_vectors, task_sentence, write_vectors
from lw2g_constraints.export import main
from lw2g_constraints.text import ClipEncoder, HashEncoder, VectorFile, orthogonal_map, read_names

SENTENCES = ["A photo of apple.", "A photo of aquarium fish.", "A photo of apple or aquarium fish."]


def test_sentences_are_those_of_the_release():
    """Underscores become spaces, classes are joined by 'or' in their order, no article."""
    assert task_sentence(["apple", "aquarium_fish"]) == "A photo of apple or aquarium fish."
    assert class_sentence("apple") == task_sentence(["apple"]) == "A photo of apple."


# -- hash ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hashed_vectors_are_the_same_in_every_process():
    """Another process computes the same vector; another sentence gets another one."""
    ours = HashEncoder(5).encode(["A photo of apple.", "A photo of pear."])
    code = (
        "from lw2g_constraints.text import HashEncoder as H;"
        "print(H(5).encode(['A photo of apple.']).tolist()[0])"
    )
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(theirs) == ours[0].tolist()
    torch.testing.assert_close(ours.norm(dim=1), torch.ones(2))
    assert abs(float(ours[0] @ ours[1])) < 0.99


def test_hashing_leaves_the_global_generator_alone():
    """The run's draws do not depend on the encoder."""
    before = torch.get_rng_state()
    HashEncoder(4).encode(SENTENCES)
    assert torch.equal(torch.get_rng_state(), before)


# -- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_a_file_gives_back_what_the_encoder_said(tmp_path, kind):
    """Rows come back by sentence, in the order asked for, in float32."""
    vectors, path = HashEncoder(6).encode(SENTENCES), tmp_path / f"vectors.{kind}"
    if kind == "npz":
        np.savez(path, vectors=vectors.double().numpy(), sentences=np.array(SENTENCES))
    else:
        write_vectors(path, vectors, SENTENCES, encoder="hash")
    read = VectorFile(path)
    assert read.dim == 6
    assert torch.equal(read.encode(SENTENCES[::-1]), vectors.flip(0))


def test_a_class_stands_for_its_sentence(tmp_path):
    """A file of class names serves the sentences of classes, but never invents that of a task."""
    write_vectors(tmp_path / "v.safetensors", torch.eye(2), ["apple", "aquarium fish"], encoder="x")
    read = VectorFile(tmp_path / "v.safetensors")
    assert torch.equal(read.encode([class_sentence("aquarium_fish")]), torch.eye(2)[1:])
    with pytest.raises(DataError, match=r"no vector for 'A photo of apple or aquarium fish.'; .*task_text"):
        read.encode([task_sentence(["apple", "aquarium_fish"])])
    with pytest.raises(DataError, match=r"no vector for 'A photo of appel.' \(did you mean 'apple'\?\)"):
        read.encode([class_sentence("appel")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"sentences": ["a"], "vectors": torch.eye(2)}, r"shape \(2, 2\) for 1 different"),
        ({"sentences": ["a", "a"], "vectors": torch.eye(2)}, r"shape \(2, 2\) for 1 different"),
        ({"sentences": ["a", 2], "vectors": torch.eye(2)}, "holds no text vectors"),
        ({"sentences": None, "vectors": torch.eye(2)}, "holds no text vectors"),
        ({"sentences": ["a", "b"], "text_features": torch.eye(2)}, "lw2g_constraints.export"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, message):
    """The message names the file and what is wrong with it."""
    said = content.pop("sentences")
    metadata = None if said is None else {"sentences": json.dumps(said)}
    save_file(content, tmp_path / "v.safetensors", metadata=metadata)
    with pytest.raises(DataError, match=message):
        VectorFile(tmp_path / "v.safetensors")


def test_what_is_no_file_or_no_tensors_is_refused(tmp_path):
    """A missing file is the configuration's fault, a broken one the data's."""
    with pytest.raises(ConfigError, match="no file"):
        VectorFile(tmp_path / "none.safetensors")
    for name in ("broken.safetensors", "broken.npz"):
        (tmp_path / name).write_text("nothing of the kind")
        with pytest.raises(DataError, match="holds no text vectors"):
            VectorFile(tmp_path / name)
    with pytest.raises(ValueError, match="expected 1 rows"):
        write_vectors(tmp_path / "v.safetensors", torch.eye(2), ["a"], encoder="x")


def test_words_of_classes_come_from_a_json_table(tmp_path):
    """A table of strings is read; anything else is refused with its name."""
    path = tmp_path / "names.json"
    path.write_text('{"n01443537": "goldfish"}')
    assert read_names(path) == {"n01443537": "goldfish"}
    for text in ("[1]", "{", '{"a": 1}', '{"a": ""}'):
        path.write_text(text)
        with pytest.raises(DataError, match="is not a JSON table"):
            read_names(path)
    with pytest.raises(ConfigError, match=r"constraints\.lgcl\.names: no file"):
        read_names(tmp_path / "none.json")


# -- width --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [(6, 6), (6, 9)])
def test_a_wider_space_keeps_all_cosines(source, target):
    """The map has orthonormal rows, so lengths and angles among texts stay."""
    texts = HashEncoder(source).encode([f"text {number}" for number in range(8)])
    mapped = texts @ orthogonal_map(source, target)
    torch.testing.assert_close(mapped @ mapped.T, texts @ texts.T, atol=1e-6, rtol=0)


def test_a_narrower_space_gets_a_projection():
    """The map has orthonormal columns; it is the same on every call."""
    chart = orthogonal_map(9, 4)
    torch.testing.assert_close(chart.T @ chart, torch.eye(4), atol=1e-6, rtol=0)
    assert torch.equal(chart, orthogonal_map(9, 4))


# -- the exporter and CLIP ----------------------------------------------------------------------------------


def export(*arguments):
    """Run the exporter in this process."""
    main([str(argument) for argument in arguments])


def test_rows_that_exist_are_exported_by_class(tmp_path):
    """One command turns a bare matrix and a list of names into a file that can be read."""
    (tmp_path / "names.json").write_text(json.dumps({"classes": ["apple", "aquarium_fish"]}))
    save_file({"text_features": torch.eye(2, 3)}, tmp_path / "rows.safetensors")
    export(tmp_path / "names.json", tmp_path / "out.safetensors", "--rows", tmp_path / "rows.safetensors")
    read = VectorFile(tmp_path / "out.safetensors")
    assert torch.equal(read.encode([class_sentence("aquarium_fish")]), torch.eye(2, 3)[1:])
    (tmp_path / "names.json").write_text('["apple"]')
    with pytest.raises(SystemExit, match="expected one tensor of 1 rows"):
        export(tmp_path / "names.json", tmp_path / "out.safetensors", "--rows", tmp_path / "rows.safetensors")


def test_sentences_of_classes_and_a_projection_are_exported(tmp_path):
    """Sentences stand as they are, each with its class; the map and the scale are those of either library."""
    sentences, rows = ["a photo of a wolf", "art of a wolf", "a road"], torch.eye(3, 4)
    (tmp_path / "names.json").write_text(json.dumps(sentences))
    (tmp_path / "classes.json").write_text(json.dumps(["wolf", "wolf", "road"]))
    save_file({"rows": rows}, tmp_path / "rows.safetensors")
    chart, logarithm = torch.arange(8.0).reshape(2, 4), torch.tensor(3.0)
    models = {
        "transformers": {"visual_projection.weight": chart.T.contiguous(), "logit_scale": logarithm},
        "open_clip": {"visual.proj": chart, "logit_scale": logarithm},
    }
    given = (tmp_path / "names.json", tmp_path / "out.safetensors", "--rows", tmp_path / "rows.safetensors")
    for library, tensors in models.items():
        save_file(tensors, tmp_path / library)
        export(*given, "--classes", tmp_path / "classes.json", "--projection", tmp_path / library)
        read = read_text_vectors(tmp_path / "out.safetensors", "option")
        assert (read.sentences, read.classes) == (tuple(sentences), ("wolf", "wolf", "road"))
        assert torch.equal(read.projection, chart)
        assert read.logit_scale == pytest.approx(torch.tensor(3.0).exp().item())
        assert torch.equal(read.of_class("road"), rows[2])
    for missing in ("--projection", "--classes"):
        with pytest.raises(SystemExit, match=r"error: .*nowhere"):
            export(*given, missing, tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="but got neither"):
        export(*given, "--projection", tmp_path / "rows.safetensors")
    save_file({"visual.proj": torch.eye(2, 5)}, tmp_path / "wide")
    with pytest.raises(SystemExit, match=r"text of width 4 .* but got \[2, 5\]"):
        export(*given, "--projection", tmp_path / "wide")
    (tmp_path / "classes.json").write_text('["wolf"]')
    with pytest.raises(SystemExit, match="expected 3 classes"):
        export(*given, "--classes", tmp_path / "classes.json")


@pytest.mark.data
def test_real_features_of_cifar_classes_can_be_exported(tmp_path):
    """Similar classes have similar vectors: the names are on the right rows."""
    data = Path(__file__).resolve().parents[4] / "shared" / "data"
    rows = data / "cifar100_clip_vitb32_text.safetensors"
    if not rows.is_file():
        pytest.skip(f"needs {rows.name}")
    export(data / "cifar100.json", tmp_path / "out.safetensors", "--rows", rows)
    names = ("motorcycle", "bicycle", "apple")
    vectors = VectorFile(tmp_path / "out.safetensors").encode([class_sentence(name) for name in names])
    motorcycle, bicycle, apple = functional.normalize(vectors, dim=1)
    assert motorcycle @ bicycle > motorcycle @ apple + 0.05


def test_clip_without_its_package_is_refused(monkeypatch):
    """The message says what to install and what else there is."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"needs the package 'transformers'.*'precomputed'"):
        ClipEncoder("some/model")


@pytest.fixture
def tiny_clip(tmp_path):
    """Write a random CLIP text model that reads 12 tokens, each a letter, into a folder."""
    transformers = pytest.importorskip("transformers")
    letters = [chr(code) for code in range(33, 127)]
    marks = ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = [*letters, *(f"{letter}</w>" for letter in letters), *marks]
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer"}')
    config = transformers.CLIPTextConfig(
        vocab_size=len(vocabulary),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=12,
        projection_dim=6,
        bos_token_id=len(vocabulary) - 2,
        eos_token_id=len(vocabulary) - 1,
        pad_token_id=len(vocabulary) - 1,
    )
    transformers.CLIPTextModelWithProjection(config).save_pretrained(tmp_path)
    return tmp_path


def test_clip_reads_a_folder(tiny_clip):
    """Vectors have the projection's width and do not depend on what else is encoded; length is known."""
    before = torch.get_rng_state()
    encoder = ClipEncoder(str(tiny_clip))
    assert torch.equal(torch.get_rng_state(), before)
    both = encoder.encode(["pear", "a fig"])
    assert (encoder.dim, both.shape, both.dtype) == (6, (2, 6), torch.float32)
    torch.testing.assert_close(encoder.encode(["pear"])[0], both[0])
    assert not both.requires_grad
    assert encoder.fits("abcde fghij")
    assert not encoder.fits("abcde fghijk")
    torch.testing.assert_close(encoder.encode(["abcde fghijk"]), encoder.encode(["abcde fghijklm"]))


def test_clip_from_nowhere_is_refused(tmp_path):
    """A model that is not on this machine is not fetched."""
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="nothing is downloaded"):
        ClipEncoder(str(tmp_path / "none"))
