"""A timm model as the backbone of a run from Python."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

import lw2g
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.registry.catalogue import load_catalogue
from lw2g.results.row_names import weights_name
from lw2g.vit import loading

NAME = "vit_tiny_patch16_224"
SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}
QUICK = {
    "baseline": "simple-cil",
    "benchmark": "digits",
    "progress": False,
    "precision": "32-true",
    "device": "cpu",
}


def model_of(seed, **options):
    """Return a random ViT in evaluation mode; it does not know how inputs are normalised."""
    torch.manual_seed(seed)
    return VisionTransformer(**SIZE, **{"num_classes": 0, **options}).eval()


def timm_model(seed, **options):
    """Return a random ViT that timm has created, which knows it."""
    torch.manual_seed(seed)
    model = timm.create_model(NAME, num_classes=0, **SIZE, **options).eval()
    torch.nn.init.constant_(model.norm.weight, 1.1)  # a file of ones would look untrained
    return model


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run on a model that is an object."""
    out = tmp_path_factory.mktemp("object") / "run"
    return lw2g.run(**QUICK, backbone=timm_model(0), out=out, tasks=2)


def test_the_record_says_what_the_object_is_and_claims_no_tag(finished):
    """Architecture and statistics are timm's, source and hash the object's; weights are named by hash."""
    backbone = finished["backbone"]
    known = timm.get_pretrained_cfg(NAME)
    assert finished["config"]["backbone"]["name"] == "local-vit-tiny-patch16-224"
    assert (backbone["timm_name"], backbone["source"], backbone["dim"]) == (NAME, "object", 48)
    assert (tuple(backbone["mean"]), tuple(backbone["std"])) == (known.mean, known.std)
    assert backbone["finetuned_on_1k"] is None
    assert weights_name(finished, load_catalogue()) == f"object {backbone['sha256'][:8]} ({NAME})"


def test_an_object_gives_the_accuracy_of_its_file(finished, tmp_path, monkeypatch):
    """The same weights by file, into the same architecture, give the same accuracies."""
    file, create = tmp_path / "weights.safetensors", timm.create_model
    save_file(timm_model(0).state_dict(), file)

    def small(name, **options):
        return create(name, **{**options, **SIZE})

    # the file is of a smaller model than lw2g knows by this tag without timm
    monkeypatch.setattr(loading, "_own_shape", lambda *_: None)
    monkeypatch.setattr(timm, "create_model", small)
    of_file = lw2g.run(
        **QUICK, backbone=f"{NAME}.augreg_in21k_ft_in1k", weights=file, out=tmp_path / "run", tasks=2
    )
    assert of_file["backbone"]["source"] == "file"
    assert of_file.rows() == finished.rows()
    assert len(finished.rows()) == 3


def test_a_run_goes_on_with_the_same_object_alone(finished, tmp_path):
    """The object's weights are part of a run: others of the same architecture are refused."""
    out = tmp_path / "run"
    lw2g.run(**QUICK, backbone=timm_model(0), out=out, tasks=1)
    with pytest.raises(Lw2gError, match=r"local=\{'backbone': \.\.\.\}"):
        lw2g.continue_run(out, tasks=2, progress=False)
    with pytest.raises(DataError, match="backbone"):
        lw2g.continue_run(out, tasks=2, progress=False, local={"backbone": timm_model(1)})
    record = lw2g.continue_run(out, tasks=2, progress=False, local={"backbone": timm_model(0)})
    assert record.rows() == finished.rows()


def test_a_run_leaves_the_object_as_it_is(tmp_path):
    """A run works on a copy: the program's model keeps its gradients and its bits."""
    model = timm_model(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lw2g.run(**QUICK, backbone=model, out=tmp_path / "run", tasks=1)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_export_is_opened_with_the_object(finished, tmp_path):
    """Exports with and without the weights predict as the run; with them inside any weights will do."""
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    same, other = {"backbone": timm_model(0)}, {"backbone": timm_model(1)}
    expected = lw2g.load(finished.path, local=same)(images)
    lw2g.export(finished.path, tmp_path / "bare", local=same)
    lw2g.export(finished.path, tmp_path / "whole", with_backbone=True, local=same)
    assert torch.equal(lw2g.load(tmp_path / "bare", local=same)(images), expected)
    assert torch.equal(lw2g.load(tmp_path / "whole", local=other)(images), expected)
    with pytest.raises(DataError, match="not those that the model was trained on"):
        lw2g.load(tmp_path / "bare", local=other)


def test_a_first_model_is_made_on_an_object_and_goes_on_with_it(tmp_path):
    """Without a run; its methods have the object, and whoever opens it gives the object again."""
    shades = torch.arange(12, dtype=torch.uint8)[:, None, None, None].expand(12, 3, 8, 8) * 20
    names = ["dark"] * 6 + ["light"] * 6
    model, _ = lw2g.start(
        (shades, names), tmp_path / "model", backbone=timm_model(0), head="lda", device="cpu"
    )
    assert "simple-cil with head lda; local-vit-tiny-patch16-224" in repr(model)
    _, report = model.learn((shades[:2] + 5, ["new"] * 2), out=tmp_path / "more")
    assert [entry["class"] for entry in report["classes"]] == ["new"]
    again = lw2g.load(tmp_path / "model", device="cpu", local={"backbone": timm_model(0)})
    assert torch.equal(again(shades), model(shades))
    with pytest.raises(ConfigError, match="backbone: 3 is no name and no backbone"):
        lw2g.start((shades, names), tmp_path / "other", backbone=3)


def checkpointing():
    """Return a model that recomputes its blocks."""
    model = timm_model(0)
    model.set_grad_checkpointing(True)
    return model


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: model_of(0, num_classes=7), {}, "has no classifier; build the model with num_classes=0"),
        (lambda: timm_model(0).train(), {}, r"in training mode; call model\.eval\(\)"),
        (checkpointing, {}, "gradient checkpointing is not supported"),
        (lambda: torch.nn.Linear(2, 2), {}, "expected a timm model .* got 'Linear'"),
        (lambda: VisionTransformer, {}, "expected a timm model .* got 'type'"),
        (lambda: model_of(0), {}, "'VisionTransformer' does not say how inputs are normalised; state both"),
        (lambda: timm_model(0), {"devices": 2}, "objects of this program exist in one process only"),
        (lambda: timm_model(0), {"weights": __file__}, r"backbone\.weights: the backbone is an object"),
        (lambda: timm_model(0), {"backbone.image_size": 64}, "takes images of 32 pixels, not 64"),
        (lambda: timm_model(0), {"backbone.pool": "map"}, "'map' pooling is not offered"),
    ],
)
def test_what_cannot_be_a_backbone_is_told_in_a_line(tmp_path, make, options, message):
    """Every mistake has its line, without the model's text, and leaves no directory."""
    with pytest.raises(Lw2gError, match=message) as caught:
        lw2g.run(**{**QUICK, **options}, backbone=make(), out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_model_built_by_hand_gets_its_statistics_beside_it(tmp_path):
    """Options of the object stand in one dictionary with it."""
    chosen = {"name": model_of(0), "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5), "pool": "avg"}
    record = lw2g.run(**QUICK, backbone=chosen, out=tmp_path / "run", tasks=1)
    assert tuple(record["backbone"]["mean"]) == (0.1, 0.2, 0.3)
    assert (record["backbone"]["pool"], record["backbone"]["timm_name"]) == ("avg", "VisionTransformer")
