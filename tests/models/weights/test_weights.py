"""Weights from elsewhere: what is taken, interpolated, left, unused, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fixformer import create_model
from fixformer.errors import WeightsError
from fixformer.models.weights import from_timm_vit, from_transformers_vit, load_weights, read_weights

WIDTH, DEPTH, CLASSES = 32, 2, 5


def vit(**settings: Any):
    sizes = {"embed_dim": WIDTH, "depth": DEPTH, "num_heads": 2, "num_frames": 4, "image_size": 64}
    return create_model("fixformer_vit_tiny", **{"num_classes": CLASSES, **sizes, **settings})


def timm_vit(side: int = 4, tokens: int = 1) -> dict[str, Tensor]:
    """A ViT of timm's names: 16-pixel patches, a class token (two for a distilled DeiT), a Linear head."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, tokens + side * side, WIDTH),
        "patch_embed.proj.weight": (WIDTH, 3, 16, 16),
        "patch_embed.proj.bias": (WIDTH,),
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
        "head.weight": (1000, WIDTH),
        "head.bias": (1000,),
    }
    linears = {"attn.qkv": (3 * WIDTH, WIDTH), "attn.proj": (WIDTH, WIDTH)}
    linears |= {"mlp.fc1": (4 * WIDTH, WIDTH), "mlp.fc2": (WIDTH, 4 * WIDTH)}
    for block in range(DEPTH):
        for name, (rows, columns) in linears.items():
            shapes |= {f"blocks.{block}.{name}.weight": (rows, columns), f"blocks.{block}.{name}.bias": (rows,)}
        for norm in ("norm1", "norm2"):
            shapes |= {f"blocks.{block}.{norm}.{part}": (WIDTH,) for part in ("weight", "bias")}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def transformers_vit(on_disk: bool) -> dict[str, Tensor]:
    """The same in transformers' names, as saved or as held in memory by version 5."""
    qkv = [f"attention.attention.{n}" for n in ("query", "key", "value")] if on_disk else None
    qkv = qkv or [f"attention.{n}_proj" for n in "qkv"]
    out, fc1, fc2 = ("attention.output.dense", "intermediate.dense", "output.dense")
    if not on_disk:
        out, fc1, fc2 = ("attention.o_proj", "mlp.fc1", "mlp.fc2")
    renamed: dict[str, Tensor] = {}
    for name, value in timm_vit().items():
        stem, _, part = name.rpartition(".")
        if stem.endswith("attn.qkv"):
            base = f"vit.{'encoder.layer' if on_disk else 'layers'}.{stem.split('.')[1]}"
            renamed |= {f"{base}.{n}.{part}": piece for n, piece in zip(qkv, value.chunk(3), strict=True)}
            continue
        new = name.replace("blocks.", "vit.encoder.layer." if on_disk else "vit.layers.")
        for old, name_there in (
            ("attn.proj", out),
            ("norm1", "layernorm_before"),
            ("norm2", "layernorm_after"),
            ("mlp.fc1", fc1),
            ("mlp.fc2", fc2),
            ("cls_token", "vit.embeddings.cls_token"),
            ("pos_embed", "vit.embeddings.position_embeddings"),
            ("patch_embed.proj", "vit.embeddings.patch_embeddings.projection"),
        ):
            new = new.replace(old, name_there)
        new = f"vit.layernorm.{part}" if stem == "norm" else new
        renamed[f"classifier.{part}" if stem == "head" else new] = value
    return renamed


def test_timm_weights_are_taken_and_time_starts_as_an_identity() -> None:
    model, source = vit(), timm_vit()
    report = load_weights(model, source, quiet=True)
    own = model.state_dict()
    assert torch.equal(own["blocks.1.space.body.qkv.weight"], source["blocks.1.attn.qkv.weight"])
    assert torch.equal(own["blocks.1.time.body.qkv.weight"], source["blocks.1.attn.qkv.weight"])
    assert torch.equal(own["position_embed.table"].flatten(0, 1), source["pos_embed"][0, 1:])
    assert report.unused == ["cls_token"]
    assert {"head.fc.weight", "head.fc.bias", "time_embed.slots"} <= set(report.initial)
    assert any("fixate" in name for name in report.initial)
    x = torch.randn(1, 4, 4, 4, WIDTH)
    assert torch.equal(model.blocks[0].time(x), x)


@pytest.mark.parametrize("on_disk", [True, False])
def test_transformers_names_give_the_same_as_timm_names(on_disk: bool) -> None:
    torch.manual_seed(0)
    ours = from_timm_vit(timm_vit())
    torch.manual_seed(0)
    theirs = from_transformers_vit(transformers_vit(on_disk))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_image_features_survive_in_a_one_frame_clip_with_softmax() -> None:
    """With softmax, no gate and no shift the preset is an image ViT without class token, written out below."""
    model = vit(attention="softmax", fixation="none", association="none", num_frames=1).eval()
    source = timm_vit()
    load_weights(model, source, quiet=True)
    image = torch.randn(1, 3, 64, 64)
    x = torch.nn.functional.conv2d(image, source["patch_embed.proj.weight"], source["patch_embed.proj.bias"], 16)
    x = x.flatten(2).mT + source["pos_embed"][:, 1:]
    for block in range(DEPTH):
        x = _image_block(
            x, {n.removeprefix(f"blocks.{block}."): v for n, v in source.items() if f"blocks.{block}." in n}
        )
    x = torch.nn.functional.layer_norm(x, (WIDTH,), source["norm.weight"], source["norm.bias"], 1e-6)
    torch.testing.assert_close(model.forward_features(image[:, :, None]).flatten(1, 3), x, atol=1e-4, rtol=1e-4)


def _image_block(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    f = torch.nn.functional
    n = f.layer_norm(x, (WIDTH,), w["norm1.weight"], w["norm1.bias"], 1e-6)
    q, k, v = f.linear(n, w["attn.qkv.weight"], w["attn.qkv.bias"]).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    y = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    x = x + f.linear(y, w["attn.proj.weight"], w["attn.proj.bias"])
    n = f.layer_norm(x, (WIDTH,), w["norm2.weight"], w["norm2.bias"], 1e-6)
    return x + f.linear(
        f.gelu(f.linear(n, w["mlp.fc1.weight"], w["mlp.fc1.bias"])), w["mlp.fc2.weight"], w["mlp.fc2.bias"]
    )


@pytest.mark.parametrize("tokens", [0, 1, 2])
def test_positions_are_interpolated_to_another_image_size(tokens: int) -> None:
    model = vit(image_size=96)
    report = load_weights(model, timm_vit(side=4, tokens=tokens), quiet=True)
    assert report.interpolated == ["position_embed.table"]
    assert model.position_embed.table.shape == (6, 6, WIDTH)


def test_our_own_weights_survive_a_change_of_frames_size_and_classes() -> None:
    source = vit()
    target = vit(num_frames=9, image_size=96, num_classes=3)
    report = load_weights(target, source.state_dict(), quiet=True)
    assert sorted(report.interpolated) == ["position_embed.table", "time_embed.slots"]
    assert sorted(report.initial) == ["head.fc.bias", "head.fc.weight"]
    assert report.unused == []
    assert torch.equal(target.state_dict()["norm.weight"], source.state_dict()["norm.weight"])


def test_a_file_round_trip_and_the_printed_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.safetensors"
    save_file(timm_vit(), file)
    load_weights(vit(), file)
    printed = capsys.readouterr().err
    for words in (
        "a ViT of timm",
        "taken",
        "interpolated",
        "left at initial values",
        "unused",
        "cls_token",
        "blocks.*.",
    ):
        assert words in printed


def test_what_does_not_fit_names_the_first_differing_tensor() -> None:
    wrong = timm_vit()
    wrong["blocks.0.attn.qkv.weight"] = torch.zeros(3, 3)
    with pytest.raises(WeightsError, match=r"blocks\.0\.space\.body\.qkv\.weight is \(3, 3\)"):
        load_weights(vit(), wrong, quiet=True)
    short = timm_vit()
    del short["blocks.1.mlp.fc2.bias"]
    with pytest.raises(WeightsError, match=r"blocks\.1\.mlp\.body\.fc2\.bias .*not in the file"):
        load_weights(vit(), short, quiet=True)
    with pytest.raises(WeightsError, match=r"the model has no blocks\.2.*depth"):
        load_weights(vit(), vit(depth=3).state_dict(), quiet=True)


def test_files_that_nobody_here_wrote_are_said_to_be_unknown() -> None:
    with pytest.raises(WeightsError, match=r"1 names .*backbone\.stem\.weight.*TimeSformer"):
        load_weights(vit(), {"backbone.stem.weight": torch.zeros(1)}, quiet=True)


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_bare_vit_of_transformers_is_recognised(on_disk: bool) -> None:
    bare = {name.removeprefix("vit."): value for name, value in transformers_vit(on_disk).items()}
    bare = {name: value for name, value in bare.items() if not name.startswith("classifier.")}
    report = load_weights(vit(), bare, quiet=True)
    assert (report.source, report.unused) == ("a ViT of transformers", ["cls_token"])
    del bare["encoder.layer.0.attention.attention.key.bias" if on_disk else "layers.0.attention.k_proj.bias"]
    with pytest.raises(WeightsError, match=r"blocks\.0\.space\.body\.query\.bias"):
        load_weights(vit(), bare, quiet=True)


def test_weight_and_bias_of_the_classifier_stay_together() -> None:
    """A head of another width with as many classes, and one without bias: neither is taken by half."""
    wider, half = timm_vit(), timm_vit()
    wider |= {"head.weight": torch.randn(CLASSES, 2 * WIDTH), "head.bias": torch.randn(CLASSES)}
    half |= {"head.weight": torch.randn(CLASSES, WIDTH)}
    del half["head.bias"]
    for file in (wider, half):
        model = vit()
        before = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("head.fc.")}
        report = load_weights(model, file, quiet=True)
        assert {"head.fc.weight", "head.fc.bias"} <= set(report.initial)
        assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    ours = vit().state_dict()
    ours["head.fc.weight"] = torch.randn(CLASSES, 2 * WIDTH)
    assert load_weights(vit(), ours, quiet=True).initial == ["head.fc.weight", "head.fc.bias"]


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    torch.save({"x": torch.zeros(1)}, file)
    with pytest.raises(WeightsError, match="never loaded"):
        read_weights(file)
    with pytest.raises(WeightsError, match="no weight file"):
        read_weights(tmp_path / "absent.safetensors")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vivit.embeddings.position_embeddings", (2,)),
        ("cls_positional_encoding.cls_token", ()),
        ("base_model.cls_token", (3,)),
        ("vit.embeddings.position_embeddings", (1, 0, 4)),
        ("blocks.0.attn.qkv.weight", (0,)),
    ],
)
def test_the_names_of_a_system_with_other_shapes_are_one_sentence(name: str, shape: tuple[int, ...]) -> None:
    model = create_model("fixformer_vit_tiny", depth=1, embed_dim=32, num_heads=2, num_frames=2, image_size=32)
    with pytest.raises(WeightsError, match="weights"):
        load_weights(model, {name: torch.zeros(shape)}, quiet=True)


def test_numbers_of_another_kind_are_one_sentence() -> None:
    model = create_model("fixformer_vit_tiny", depth=1, embed_dim=32, num_heads=2, num_frames=2, image_size=32)
    weights = {**model.state_dict(), "norm.bias": torch.zeros(32, dtype=torch.int64)}
    with pytest.raises(WeightsError, match=r"norm\.bias .*int64"):
        load_weights(model, weights, quiet=True)
