"""The backbone presets say exactly which checkpoint they are, and what to do where its file is missing."""

from __future__ import annotations

import hashlib
import json

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

from lw2g.errors import ConfigError, DataError
from lw2g.registry.catalogue import load_catalogue
from lw2g_backbones import plugin
from lw2g_backbones.known_backbones import PRESETS, KnownFile, MicroConfig, PresetConfig, facts_of
from lw2g_backbones.micro import build_micro
from lw2g_backbones.opened_backbone import load_checkpoint, require_same

NAMES = {
    "sup21k",
    "sup21k-augreg",
    "sup21k-ft1k",
    "ibot21k",
    "ibot1k",
    "dino1k",
    "mocov3-1k",
    "mae-b16",
    "dinov2-b14",
    "clip-b16",
    "vit-small",
    "vit-small-ft1k",
    "vit-tiny",
    "vit-tiny-ft1k",
    "features",
    "micro",
    "timm",
}

FILE_NEEDED = {"ibot21k", "ibot1k", "mocov3-1k"}


def test_all_backbones_register_without_a_problem():
    """The catalogue takes every backbone of the plugin."""
    catalogue = load_catalogue(plugins=[plugin], entry_points=False)
    assert catalogue.problems == ()
    assert set(catalogue.names("backbone")) == NAMES
    assert [name for name in NAMES if catalogue.get("backbone", name).embedded] == ["micro"]


def test_presets_that_have_seen_the_labels_of_1k_are_called_so():
    """Rows with fine-tuned weights are not comparable with the others, so the flag must be right."""
    tuned = [preset.name for preset in PRESETS if preset.finetuned_on_1k]
    assert tuned == [preset.name for preset in PRESETS if preset.name.endswith("ft1k")]
    assert "sup21k-ft1k" in tuned


def test_presets_that_timm_can_fetch_exist_in_timm_with_these_statistics():
    """Name, tag and input statistics agree with timm's own registry."""
    fetched = [preset for preset in PRESETS if preset.fetched_by_timm]
    assert {preset.name for preset in PRESETS} - {preset.name for preset in fetched} == FILE_NEEDED
    for preset in fetched:
        config = timm.get_pretrained_cfg(preset.timm_name)
        assert (tuple(config.mean), tuple(config.std)) == (preset.mean, preset.std)
        assert config.tag == preset.timm_name.partition(".")[2]
        if config.url and preset.page.startswith("README of google"):
            assert config.url.endswith(preset.file) or config.tag == "orig_in21k"


@pytest.mark.parametrize("name", sorted(FILE_NEEDED))
def test_a_preset_that_needs_a_file_says_which_and_where(name):
    """No file, no guess: the official file and page are named."""
    preset = next(preset for preset in PRESETS if preset.name == name)
    with pytest.raises(DataError) as caught:
        load_checkpoint(PresetConfig(), None, None, preset=preset)
    for part in (repr(name), preset.file, preset.page, "weights=FILE"):
        assert part in str(caught.value)


def test_a_missing_file_is_named_with_the_preset(tmp_path):
    """The path that was tried is in the message, for presets that timm could fetch too."""
    preset = PRESETS[0]
    with pytest.raises(DataError, match=r"backbone 'sup21k': no weights file .*gone\.npz"):
        load_checkpoint(PresetConfig(), tmp_path / "gone.npz", None, preset=preset)


def test_names_of_papers_are_told_apart():
    """The same words mean different files: each row has its own preset, and detail says who used it."""
    known = {preset.name: facts_of(preset) for preset in PRESETS}
    by_name = {use.called: preset.name for preset in PRESETS for use in preset.used}
    assert by_name["Sup-21K"] == "sup21k"
    assert by_name["ViT-B/16-IN21K, pretrained_vit_b16_224_in21k"] == "sup21k-augreg"
    assert by_name["ViT-B/16-IN1K, pretrained_vit_b16_224"] == "sup21k-ft1k"
    assert any("used by LW2G" in fact and "'Sup-21K'" in fact for fact in known["sup21k"])
    assert any(fact.endswith("412,815,506 bytes (unconfirmed)") for fact in known["sup21k"])
    last = {facts[-1] for facts in known.values()}
    assert last == {"results with different checkpoints do not compare, whatever papers call them"}


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path):
    """A confirmed hash is held up against a file of that name; an unconfirmed one refuses nothing."""
    path = tmp_path / "weights.npz"
    path.write_bytes(b"something else")
    begins = hashlib.sha256(b"something else").hexdigest()[:8]
    digits = "0" * 64
    with pytest.raises(DataError, match=rf"is not the published 'weights.npz': .* with {begins} instead"):
        require_same(KnownFile(name="weights.npz", sha256=digits, confirmed=True), path)
    require_same(KnownFile(name="weights.npz", sha256=digits), path)
    require_same(KnownFile(name="weights.npz", sha256=begins, confirmed=True), path)
    require_same(KnownFile(name="other.npz", sha256=digits, confirmed=True), path)


def test_timm_without_a_model_is_refused():
    """The component needs a name and says how to give one."""
    component = load_catalogue(plugins=[plugin], entry_points=False).get("backbone", "timm")
    with pytest.raises(ConfigError, match=r"backbone\.model"):
        component.build(component.config(), None, None)


def test_micro_reads_its_architecture_from_the_file(tmp_path):
    """Shape, input statistics and weights all come from the file; another image size resamples positions."""
    architecture = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}
    model = VisionTransformer(**architecture, num_classes=0)
    torch.nn.init.uniform_(model.norm.weight)
    metadata = {"architecture": json.dumps(architecture), "mean": "[0.1, 0.2, 0.3]", "std": "[1, 1, 0.5]"}
    path = tmp_path / "small.safetensors"
    save_file(model.state_dict(), path, metadata=metadata)
    state = torch.get_rng_state()
    backbone = build_micro(MicroConfig(), path, None)
    assert torch.equal(torch.get_rng_state(), state)
    assert (backbone.dim, backbone.depth, backbone.image_size) == (24, 2, 16)
    assert (backbone.fingerprint.mean, backbone.fingerprint.std) == ((0.1, 0.2, 0.3), (1.0, 1.0, 0.5))
    images = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(backbone.features(images), model.eval()(images).detach())
    assert build_micro(MicroConfig(), path, 32).image_size == 32


def test_micro_refuses_a_file_of_another_kind(tmp_path):
    """A file without the metadata is named, with what to do."""
    path = tmp_path / "other.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"is no micro ViT \(.*header.*\); use a file"):
        build_micro(MicroConfig(), path, None)
    for metadata in (
        {},
        {"architecture": "vit_tiny"},
    ):  # of other weights
        save_file({"a": torch.zeros(1)}, path, metadata)
        with pytest.raises(DataError, match=r"is no micro ViT; use a file"):
            build_micro(MicroConfig(), path, None)
