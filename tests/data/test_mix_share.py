"""Mixed clips under several processes: even shares only."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from fixformer.config import Augment
from fixformer.data.mix import mix_batch
from fixformer.errors import SettingsConflict


def test_an_odd_share_of_a_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    video, labels, rng = torch.zeros(3, 3, 2, 4, 4), torch.arange(3), np.random.default_rng(0)
    mix_batch(video, labels, Augment(mixup=0.2), rng)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    mix_batch(video, labels, Augment(), rng)
    mix_batch(video[:2], labels[:2], Augment(cutmix=0.2), rng)
    with pytest.raises(SettingsConflict, match="each of 2 processes has 3; make batch_size a multiple of 4"):
        mix_batch(video, labels, Augment(mixup=0.2), rng)
