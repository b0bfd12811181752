"""Making an explanation of one clip: table, heats, roll-out, occlusion and Fig. 2, as far as the model has them.

Legend: C colours, T frames, H height, W width; t, h, w frames, rows and columns of tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.data.clips.transforms import normalise
from fixformer.errors import UnknownName
from fixformer.evaluation.explain.attention_maps import Recorded, named_attentions, record_attentions
from fixformer.evaluation.explain.concentration import as_shares, mean_of, measure, parts, rank_correlation
from fixformer.evaluation.explain.explanation import Explanation, LayerRow
from fixformer.evaluation.explain.figure_two import FigureTwo, Panel, figure_two, panel_of
from fixformer.evaluation.explain.heat import averaged, enlarged, stretched
from fixformer.evaluation.explain.occlusion import occlude
from fixformer.evaluation.explain.rollout import MeanMatrix, roll_out
from fixformer.models.base import VideoModel
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.progress import Report

FIXATION, ROLL_OUT, OCCLUSION = "fixation", "roll-out", "occlusion"


@dataclass
class _Seen:
    """What is kept of the attentions of a forward pass."""

    wanted: Sequence[str]
    drawn: str | None
    table: list[LayerRow] = field(default_factory=list)
    means: list[MeanMatrix] = field(default_factory=list)
    gammas: list[Tensor] = field(default_factory=list)
    matrices: dict[str, Tensor] = field(default_factory=dict)
    for_figure: Recorded | None = None
    has_negative: bool = False

    def add(self, recorded: Recorded) -> None:
        rows, means, whole = [], [], []
        for part in parts(recorded):
            matrix_GhNN = recorded.matrix(part)
            self.has_negative |= bool((matrix_GhNN < -1e-6).any())
            shares_GhNN = as_shares(matrix_GhNN)
            rows.append((len(shares_GhNN), measure(shares_GhNN, recorded.softmax_twin(part))))
            means.append(shares_GhNN.mean(1).float().cpu())
            if recorded.name in self.wanted:
                whole.append(matrix_GhNN.float().cpu())
        if whole:
            self.matrices[recorded.name] = torch.cat(whole)
        self.means.append(MeanMatrix(recorded.module, recorded.size_BTHW, torch.cat(means)))
        ratios = recorded.ratios()
        gamma = float(torch.stack(ratios).mean()) if ratios else None
        if ratios and recorded.name in self.wanted:
            self.gammas.append(torch.stack([ratio[0].mean((-1, -2)) for ratio in ratios]).mean(0).float().cpu())
        total = mean_of(rows)
        tokens = recorded.attended[0].shape[2]
        self.table.append(LayerRow(recorded.name, tokens, total.entropy, total.top_tenth, total.to_softmax, gamma))
        if recorded.name == self.drawn:
            self.for_figure = recorded


def choose_layers(model: VideoModel, layers: Sequence[str] | None) -> list[str]:
    """Names of attentions: all, or those given as block ("3") or block and axis ("3.space")."""
    known = list(named_attentions(model))
    chosen = []
    for layer in layers if layers is not None else known:
        found = [name for name in known if layer in (name, name.partition(".")[0])]
        if not found:
            raise UnknownName("layer", layer, known or ["none: this model has no attention of its own kind"])
        chosen += found
    return chosen


def figure_layer(names: Sequence[str]) -> str | None:
    """The attention that is drawn: the last one within frames, or over all tokens, else the last."""
    spatial = [name for name in names if not name.endswith(".time")]
    return next(reversed(spatial or list(names)), None)


def explain(
    name: str,
    model: VideoModel,
    spec: ClipSpec,
    labels: list[str],
    clip_CTHW: Tensor,
    device: torch.device,
    *,
    layers: Sequence[str] | None = None,
    cells: tuple[int, int, int] | None = (4, 4, 4),
    compare: Sequence[tuple[str, VideoModel, Tensor]] = (),
    progress: Report | None = None,
) -> Explanation:
    """The explanation of a clip of bytes.

    Args:
        layers: whose matrices are kept, whose fixation is averaged, and the last of which is drawn; by default all are
            averaged and none is kept.
        cells: of the occlusion; None leaves it out.
        compare: separately trained models for Fig. 2, each with its name and its video `[1, C, T, H, W]`.
    """
    video_1CTHW = normalise(clip_CTHW[None], spec.mean, spec.std).to(device)
    chosen = choose_layers(model, layers)
    seen = _Seen(chosen, figure_layer(chosen))
    shares_K = record_attentions(model, video_1CTHW, seen.add).softmax(-1)[0].float().cpu()
    label = int(shares_K.argmax())
    size = tuple(clip_CTHW.shape[1:])
    raw, notes = _heats_of(model, seen)
    drops = None if cells is None else occlude(model, video_1CTHW, label, _at_most(cells, size), progress)
    if drops is not None:
        raw[OCCLUSION] = drops
    heats = {kind: enlarged(stretched(values), size).numpy() for kind, values in raw.items()}  # type: ignore[arg-type]
    first = next(iter(heats), None)
    if first is None:
        notes.append("there is no heat to draw; ask for the occlusion.")
    return Explanation(
        file=name,
        label=labels[label],
        probability=float(shares_K[label]),
        frames_THWC=clip_CTHW.permute(1, 2, 3, 0).contiguous().numpy(),
        gamma_THW=heats[first] if first else np.zeros(size, np.float32),
        heat_of=first or "nothing",
        heats=heats,
        raw_range={kind: (float(values.min()), float(values.max())) for kind, values in raw.items()},
        table=seen.table,
        correlations=_correlations(raw, drops),
        occlusion_cells=None if drops is None else drops.numpy(),
        matrices=seen.matrices if layers is not None else {},
        figure=_figure(seen, drops, compare, notes),
        notes=notes,
    )


def _at_most(cells: tuple[int, int, int], size: Sequence[int]) -> tuple[int, int, int]:
    frames, rows, columns = (min(count, limit) for count, limit in zip(cells, size, strict=True))
    return frames, rows, columns


def _heats_of(model: VideoModel, seen: _Seen) -> tuple[dict[str, Tensor], list[str]]:
    """Fixation and roll-out of the tokens `[t, h, w]`, and why one of them is missing."""
    raw: dict[str, Tensor] = {}
    notes = []
    if seen.gammas:
        raw[FIXATION] = torch.stack(seen.gammas).mean(0)
    else:
        notes.append(f"{model.name} has no feature fixation, so there is no fixation ratio to show.")
    if isinstance(model, VideoTransformer) and seen.means:
        raw[ROLL_OUT] = roll_out(seen.means)
    else:
        notes.append(f"{model.name} does not pool the tokens of our attention, so there is no roll-out.")
    if not seen.table:
        notes.append(f"{model.name} has no attention of models/attention, so only the occlusion explains it.")
    if seen.has_negative:
        notes.append("this attention gives negative weights, too; their absolute values are measured.")
    return raw, notes


def _correlations(raw: dict[str, Tensor], drops: Tensor | None) -> dict[str, float | None]:
    if drops is None:
        return {}
    cells = tuple(drops.shape)
    others = {kind: values for kind, values in raw.items() if kind != OCCLUSION}
    return {kind: rank_correlation(averaged(values, cells), drops.numpy()) for kind, values in others.items()}  # type: ignore[arg-type]


def _figure(
    seen: _Seen, drops: Tensor | None, compare: Sequence[tuple[str, VideoModel, Tensor]], notes: list[str]
) -> FigureTwo | None:
    """Fig. 2 for the token whose cell matters most by occlusion, or the one in the middle of the clip."""
    recorded = seen.for_figure
    if recorded is None:
        return None
    _, T, H, W = recorded.size_BTHW
    t, h, w = (T // 2, H // 2, W // 2)
    if drops is not None:
        best = np.unravel_index(int(drops.argmax()), tuple(drops.shape))
        t, h, w = (
            min(int((cell + 0.5) * size / count), size - 1)
            for cell, size, count in zip(best, (T, H, W), drops.shape, strict=True)
        )
    mark = torch.zeros(1, T, H, W, 1, 1)
    mark[0, t, h, w] = 1
    sequence, _, query, _ = recorded.module.axis.sequences(mark).nonzero()[0].tolist()
    found = figure_two(recorded, sequence, query)
    notes += found.notes
    found.panels.extend(panel for other in compare if (panel := _compared(recorded, sequence, other, notes)))
    return found


def _compared(
    recorded: Recorded, sequence: int, other: tuple[str, VideoModel, Tensor], notes: list[str]
) -> Panel | None:
    """The matrix of a separately trained model in the same layer and sequence."""
    title, model, video_1CTHW = other
    kept: list[Recorded] = []
    keep: Callable[[Recorded], None] = lambda found: kept.append(found) if found.name == recorded.name else None  # noqa: E731
    record_attentions(model, video_1CTHW, keep)
    if not kept or kept[0].attended[0].shape[2] != recorded.attended[0].shape[2]:
        notes.append(f"{title} has no layer {recorded.name} of as many tokens, so it is not in Fig. 2.")
        return None
    place = slice(sequence, sequence + 1)
    return panel_of(title, kept[0].matrix(place)[0], kept[0].softmax_twin(place)[0])
