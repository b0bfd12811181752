"""Complete runs by name. A recipe is a function that returns a config; its docstring states cost and expected accuracy.

"Expected" was measured with this package (see results/) unless it says that it is the paper's: the paper's weights
pre-trained on images are not public, so its accuracies cannot be reproduced from public material.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace

from fixformer.config.clip import Augment, ClipSpec
from fixformer.config.data import DataConfig
from fixformer.config.eval import EvalConfig
from fixformer.config.train import OptimConfig, Stage, TrainConfig
from fixformer.errors import UnknownName

Recipe = Callable[[], TrainConfig]

RECIPES: dict[str, Recipe] = {}


def recipe(function: Recipe) -> Recipe:
    """Add a recipe under its function's name."""
    RECIPES[function.__name__] = function
    return function


def get_recipe(name: str) -> TrainConfig:
    """The config of a named recipe."""
    return replace(_find(name)(), recipe=name)


def describe_recipe(name: str) -> str:
    """The docstring of a named recipe."""
    return inspect.getdoc(_find(name)) or ""


def _find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]


# Trains fast from scratch on a small data set; see `ConvStem` and `GridPool`.
SMALL_SET = {"stem": "conv", "patch_size": 8, "position_embedding": "learned", "pool": "grid"}


@recipe
def demo() -> TrainConfig:
    """The generated motions data set: 12 classes that differ only in the order of their frames.

    Cost: about 4 minutes on 2 CPU cores. Hardware: any. Expected: at least 90 % top-1 on held-out clips, 2x3 views.
    Command: fixformer train demo --data demo/motions
    """
    return TrainConfig(
        model="fixformer_tiny",
        model_settings={**SMALL_SET, "dropout": 0.1},
        data=DataConfig(kind="ssv2", workers=0, cache="auto"),
        clip=ClipSpec(frames=8, size=32, keep_frames=32, keep_short_side=40, augment=Augment(jitter=(32, 36))),
        epochs=14,
        batch_size=16,
        ema=0.99,
        optim=OptimConfig(lr=1e-3, warmup_epochs=1, clip_norm=1.0),
        eval=EvalConfig(views="2x3", every=3),
    )


@recipe
def auto() -> TrainConfig:
    """Your own videos: what `fixformer train DIR` starts from; it chooses the rest and says why.

    fixformer_lite, 8 frames of 128 pixels, from public image weights (extra "pretrained"). How frames become square,
    the phases and the number of epochs follow from the videos, the machine and --minutes (docs/own_videos.md).
    Cost: as many minutes as asked for. Hardware: any. Expected: depends on your data.
    Command: fixformer train videos
    """
    return TrainConfig(
        model="fixformer_lite",
        model_settings={"dropout": 0.3, "drop_path": 0.1},
        data=DataConfig(cache="auto", workers=0),
        clip=ClipSpec(
            frames=8,
            size=128,
            keep_frames=32,
            keep_short_side=128,
            # of EfficientNet-Lite0, which was trained on (bytes - 127) / 128
            mean=(127 / 255,) * 3,
            std=(128 / 255,) * 3,
            augment=Augment(jitter=(128, 160), reach=0.6, warp=0.2, colour=0.4, span=0.8),
        ),
        epochs=20,
        batch_size=16,
        smoothing=0.1,
        ema=0.998,
        optim=OptimConfig(lr=1e-3, warmup_epochs=0.5, clip_norm=1.0, stem_scale=0.3, stem_frozen=3),
        eval=EvalConfig(views="2x1", baselines=True),
    )


@recipe
def folder() -> TrainConfig:
    """Fine-tune on your own class folders, DIR/{train,val}/CLASS/*.mp4 or DIR/CLASS/*.mp4.

    Start from init=WEIGHTS (a public ViT-S/16 or DeiT-S/16 file, or a checkpoint of this package); without it the model
    is trained from scratch. On a CPU use a smaller model and clip: model=fixformer_tiny size=64 frames=8.
    Cost: see --dry-run. Hardware: one GPU with 8 GB (estimated). Expected: depends on your data.
    Command: fixformer train folder --data DIR --init vit_small.safetensors
    """
    return TrainConfig(
        model="fixformer_vit_small",
        model_settings={"dropout": 0.2, "drop_path": 0.1},
        clip=ClipSpec(frames=16, size=224, augment=Augment(crop="resized", area=(0.4, 1.0), colour=0.2, span=0.8)),
        epochs=30,
        batch_size=16,
        smoothing=0.1,
        ema=0.999,
        optim=OptimConfig(lr=2e-4, layer_decay=0.75, warmup_epochs=3, clip_norm=1.0),
        eval=EvalConfig(views="2x3", baselines=True),
    )


def _lsa64(focus: float, augment: Augment) -> TrainConfig:
    """Tuned on LSA64 itself; docs/lsa64.md lists every run that was tried."""
    return TrainConfig(
        model="fixformer_tiny",
        model_settings={**SMALL_SET, "patch_size": 16, "dropout": 0.3, "drop_path": 0.1},
        data=DataConfig(kind="lsa64", workers=1, cache="auto"),
        clip=ClipSpec(frames=8, size=96, focus=focus, keep_frames=32, keep_short_side=128, augment=augment),
        batch_size=16,
        smoothing=0.1,
        ema=0.998,
        optim=OptimConfig(lr=1e-3, clip_norm=1.0),
        eval=EvalConfig(views="2x1", every=4),
    )


@recipe
def lsa64_all() -> TrainConfig:
    """LSA64, all 64 signs; trained on signers 1-8, tested on the unseen signers 9-10.

    Cost: about an hour on 2 CPU cores, resumable. Hardware: any. Expected: 93 % top-1, 2x1 views; a linear probe on
    pixels scores 70 %.
    Command: fixformer train lsa64_all --data lsa64
    """
    config = _lsa64(0.4, Augment(jitter=(96, 116), reach=0.6, colour=0.4, span=0.8))
    optim = replace(config.optim, warmup_epochs=2)
    return replace(config, epochs=36, stages=(Stage(24, 8, 64), Stage(12, 8, 96)), optim=optim)


@recipe
def lsa64() -> TrainConfig:
    """LSA64, 23 one-handed signs of recording set 1; trained on signers 1-8, tested on the unseen signers 9-10.

    Start from lsa64_all, the 64 signs of the same eight signers: 23 signs alone are too few to learn from.
    Cost: 45 minutes on 2 CPU cores after that. Hardware: any. Expected: 93 to 95 % top-1, 2x1 views; a linear probe on
    pixels scores 64 %.
    Command: fixformer train lsa64 --data lsa64 --init runs/lsa64_all
    """
    config = _lsa64(0.35, Augment(jitter=(96, 140), reach=0.6, warp=0.25, colour=0.4, span=0.8))
    data, optim = replace(config.data, recording_set=1), replace(config.optim, warmup_epochs=0.5)
    return replace(config, data=data, epochs=48, optim=optim)


@recipe
def lsa64_lite() -> TrainConfig:
    """LSA64, all 64 signs, from public image weights; trained on signers 1-8, tested on the unseen signers 9-10.

    With recording_set=1 --init runs/lsa64_lite the 23 one-handed signs. Settings chosen on signers 7-8.
    Cost: about an hour on one CPU core, resumable. Hardware: any. Expected: see docs/own_videos.md.
    Command: fixformer train lsa64_lite --data lsa64
    """
    config = auto()
    return replace(
        config,
        data=replace(config.data, kind="lsa64"),
        clip=replace(config.clip, focus=0.38, mean=(0.498,) * 3, std=(0.502,) * 3),
        epochs=14,
        frozen_epochs=5,
        frozen_draws=2,
        micro_batch=2,
        eval=EvalConfig(views="2x1", every=2),
    )


@recipe
def ablate_frozen() -> TrainConfig:
    """Base of `fixformer ablate`: the paper's blocks on features of a pre-trained image network that stays frozen.

    LSA64's 23 signs: python tools/lsa64_lists.py lsa64 signs23.csv --train 1-6 --val 7-8 --test 9-10
    8 epochs: on signers 7-8 more gain nothing (results/own_videos.json, run p1).
    Cost: see `fixformer ablate modules --dry-run`. Hardware: any. Expected: docs/results.md.
    Command: fixformer train ablate_frozen --data signs23.csv
    """
    config = replace(_ablation(epochs=8, frozen_epochs=8), micro_batch=None)
    return replace(config, eval=replace(config.eval, every=4))


@recipe
def ablate_tuned() -> TrainConfig:
    """Base of `fixformer ablate`: as ablate_frozen, but then the image network is trained as well.

    Cost: see `fixformer ablate modules --recipe ablate_tuned --dry-run`. Hardware: any. Expected: docs/results.md.
    Command: fixformer train ablate_tuned --data signs23.csv
    """
    return _ablation(epochs=12, frozen_epochs=6)


@recipe
def ablate_patch() -> TrainConfig:
    """Base of `fixformer ablate`: the paper's overlapping patches at half their size, from scratch.

    Cost: see `fixformer ablate modules --recipe ablate_patch --dry-run`. Hardware: any. Expected: docs/results.md.
    Command: fixformer train ablate_patch --data signs23.csv
    """
    config = _lsa64(0.38, Augment(jitter=(64, 80), reach=0.6, warp=0.2, colour=0.4, span=0.8))
    settings = {**HALF_PATCHES, "dropout": 0.3, "drop_path": 0.1}
    data = replace(config.data, kind="csv", workers=0)
    clip = replace(config.clip, size=64, keep_short_side=80)
    optim = replace(config.optim, warmup_epochs=1)
    return replace(config, model_settings=settings, data=data, clip=clip, epochs=24, ema=0.98, optim=optim)


@recipe
def ablate_motions() -> TrainConfig:
    """Base of `fixformer ablate`: the generated motions, with patches as in ablate_patch.

    Cost: see `fixformer ablate modules --recipe ablate_motions --dry-run`. Hardware: any. Expected: docs/results.md.
    Command: fixformer train ablate_motions --data demo/motions
    """
    config = demo()
    return replace(config, model_settings={**HALF_PATCHES, "dropout": 0.1}, eval=EvalConfig(views="2x1", every=4))


# The geometry of the paper (16, 14 and 8 pixels) for frames of half the side and less.
HALF_PATCHES = {"patch_size": 8, "patch_stride": 7, "patch_padding": 4}


def _ablation(epochs: int, frozen_epochs: int) -> TrainConfig:
    """`lsa64_lite` on a list of videos; the averaged weights span a twentieth of the steps, as `train DIR` has it."""
    config = replace(lsa64_lite(), epochs=epochs, frozen_epochs=frozen_epochs, frozen_draws=4, ema=0.98)
    return replace(config, data=replace(config.data, kind="csv"), eval=EvalConfig(views="2x1", every=8))


def _sgd(lr: float, weight_decay: float, warmup_lr: float) -> OptimConfig:
    """The optimiser of the paper and of the released code."""
    return OptimConfig(
        optimiser="sgd",
        lr=lr,
        weight_decay=weight_decay,
        momentum=0.9,
        no_decay="head_biases",
        warmup_epochs=5,
        warmup_lr=warmup_lr,
    )


def _paper(warmup_lr: float, clip: ClipSpec, shift_space: int, shift_divisor: int, views: str) -> TrainConfig:
    """The paper's table of training details; what it does not specify is taken from the released code.

    The table's "temporal shift 4 / 8" is the divisor of the released code: a quarter or an eighth of the channels comes
    from the previous frame, and as much from the next.
    """
    shift = {"shift_space": shift_space, "shift_time": 1, "shift_keep": 1 - 2 / shift_divisor}
    return TrainConfig(
        model="fixformer_base",
        model_settings={**shift, "dropout": 0.5},
        data=DataConfig(workers=8),
        clip=clip,
        epochs=35,
        batch_size=32,
        optim=_sgd(lr=0.035, weight_decay=4e-4, warmup_lr=warmup_lr),
        eval=EvalConfig(views=views),
    )


SSV2_AUGMENT = Augment(crop="jitter", jitter=(256, 320), policy="v0")
SSV2_CLIP = ClipSpec(frames=16, sampling="uniform", size=224, antialias=False, augment=SSV2_AUGMENT)
K400_CLIP = ClipSpec(
    frames=16, sampling="dense", stride=16, size=224, antialias=False, augment=replace(SSV2_AUGMENT, flip=0.5)
)


@recipe
def ssv2() -> TrainConfig:
    """Something-Something V2 as in the paper: batch 32, lr 0.035, 35 epochs, weight decay 4e-4, shift 1/4, ξ 1.

    Cost: 185,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 65.5 % top-1, 90.1 %
    top-5 (the paper's, from private ImageNet-21k weights), 2x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train ssv2 --data ssv2
    """
    config = _paper(0.003, SSV2_CLIP, shift_space=1, shift_divisor=4, views="2x3")
    return replace(config, data=replace(config.data, kind="ssv2"))


@recipe
def k400() -> TrainConfig:
    """Kinetics-400 as in the paper: batch 32, lr 0.035, 35 epochs, weight decay 4e-4, shift 1/8, ξ 4, 16 frames of
    stride 16.

    Cost: 260,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 78.0 % top-1,
    94.2 % top-5 (the paper's, from private ImageNet-21k weights), 4x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train k400 --data k400
    """
    config = _paper(0.01, K400_CLIP, shift_space=4, shift_divisor=8, views="4x3")
    return replace(config, data=replace(config.data, kind="kinetics"))


@recipe
def k600() -> TrainConfig:
    """Kinetics-600 as in the paper, with the settings of k400.

    Cost: 400,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 84.1 % top-1,
    96.2 % top-5 (the paper's, from private ImageNet-21k weights), 4x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train k600 --data k600
    """
    return k400()


@recipe
def ssv2_released() -> TrainConfig:
    """Something-Something V2 as in the released configuration: lr 0.03, weight decay 1e-4, random erasing 0.5.

    Cost: 185,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 65.5 % top-1, 90.1 %
    top-5 (the paper's, from private ImageNet-21k weights), 2x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train ssv2_released --data ssv2
    """
    return TrainConfig(
        model="fixformer_base_released",
        model_settings={"shift_space": 1, "shift_keep": 0.5, "dropout": 0.5},
        data=DataConfig(kind="ssv2", workers=8),
        clip=replace(SSV2_CLIP, augment=replace(SSV2_AUGMENT, erase=0.5)),
        epochs=35,
        batch_size=32,
        optim=_sgd(lr=0.03, weight_decay=1e-4, warmup_lr=0.003),
        eval=EvalConfig(views="2x3"),
    )


@recipe
def k400_released() -> TrainConfig:
    """Kinetics-400 as in the released configuration: 40 epochs, weight decay 1e-5, mixup, smoothing 0.3.

    The gate is not shared; the temporal shift moves a quarter of the channels within each half of the clip (8 frames).
    Cost: 300,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 78.0 % top-1,
    94.2 % top-5 (the paper's, from private ImageNet-21k weights), 4x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train k400_released --data k400
    """
    augment = Augment(crop="multiscale", policy="v0", flip=0.5, mixup=0.4)
    return TrainConfig(
        model="fixformer_base_released",
        model_settings={
            "shift_space": 1,
            "shift_keep": 0.75,
            "shift_segment": 8,
            "fixation_shared": False,
            "dropout": 0.5,
        },
        data=DataConfig(kind="kinetics", workers=8),
        clip=replace(K400_CLIP, augment=augment),
        epochs=40,
        batch_size=32,
        smoothing=0.3,
        optim=_sgd(lr=0.035, weight_decay=1e-5, warmup_lr=0.01),
        eval=EvalConfig(views="4x3"),
    )


@recipe
def k600_released() -> TrainConfig:
    """Kinetics-600 as in the released configuration: k400_released with a shared gate.

    Cost: 460,000 steps of 32 clips. Hardware: 8 GPUs with 32 GB (not measured here). Expected: 84.1 % top-1,
    96.2 % top-5 (the paper's, from private ImageNet-21k weights), 4x3 views.
    Command: torchrun --nproc-per-node 8 -m fixformer train k600_released --data k600
    """
    config = k400_released()
    return replace(config, model_settings={**config.model_settings, "fixation_shared": True})


@recipe
def images() -> TrainConfig:
    """Image classification with the same backbone, images as clips of one frame; to pre-train weights for other runs.

    Cost: ImageNet-1k for 300 epochs. Hardware: 8 GPUs with 24 GB (not measured here). Expected: not known; the paper
    started from private ImageNet-21k weights.
    Command: torchrun --nproc-per-node 8 -m fixformer train images --data imagenet
    """
    augment = Augment(crop="resized", area=(0.08, 1.0), flip=0.5, policy="rand", erase=0.25, mixup=0.8, cutmix=1.0)
    return TrainConfig(
        model="fixformer_base",
        model_settings={"dropout": 0.0, "drop_path": 0.1},
        data=DataConfig(kind="images", workers=8),
        clip=ClipSpec(frames=1, size=224, short_side=256, augment=augment),
        epochs=300,
        batch_size=1024,
        micro_batch=128,
        smoothing=0.1,
        ema=0.9999,
        optim=OptimConfig(lr=1e-3, betas=(0.9, 0.999), warmup_epochs=5, warmup_lr=1e-6, end_lr=1e-5, clip_norm=1.0),
        eval=EvalConfig(views="1x1", every=5),
    )
