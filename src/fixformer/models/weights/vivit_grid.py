"""The grid of ViViT's positions, which its public files hold as a list of T·H·W vectors without saying T, H and W.

Shapes: T frames, H rows, W columns of tokens, N = T·H·W, D width.
"""

from collections.abc import Mapping
from math import isqrt, prod
from pathlib import Path

from torch import Tensor

from fixformer.config.schema import PositiveInt, coerce
from fixformer.errors import WeightsError
from fixformer.runtime.files import parse_json, read_text

Grid = tuple[int, int, int]
Volume = tuple[PositiveInt, PositiveInt, PositiveInt]

VOLUME, FILTER = "position_embed.volume", "patch_embed.proj.weight"
# Every file its authors published: tubelets of 2x16x16 from 32 frames of 224 pixels.
PUBLISHED_TUBELET, PUBLISHED_GRID = (2, 16, 16), (16, 14, 14)
REMEDY = "put the config.json of the model beside the file, or pass grid=(frames, rows, columns) of its tokens"


def with_grid(named: Mapping[str, Tensor], grid: Grid | None) -> dict[str, Tensor]:
    """The same tensors with the list of positions as `[T, H, W, D]`; without `grid` it is inferred."""
    list_ND = named[VOLUME]
    if grid is None:
        tubelet = tuple(named[FILTER].shape[2:]) if FILTER in named else ()
        grid = _only_grid(len(list_ND), tubelet)
    if min(grid) < 1 or prod(grid) != len(list_ND):
        raise WeightsError(
            f"a grid of {_text(grid)} tokens has {prod(grid)} positions, the file has {len(list_ND)}; "
            "check image_size, num_frames and tubelet_size in config.json, or the grid that was passed."
        )
    return {**named, VOLUME: list_ND.unflatten(0, grid)}


def grid_beside(path: Path) -> Grid | None:
    """The grid by the config.json that transformers writes beside its weights, if there is one."""
    file = path.parent / "config.json"
    if not file.is_file():
        return None
    try:
        config = parse_json(read_text(file))
        size, tubelet = config["image_size"], config["tubelet_size"]
        clip = (config["num_frames"], *(size if isinstance(size, list) else (size, size)))
        volume, (frames, height, width) = (coerce(value, Volume, "config.json") for value in (clip, tubelet))
        return volume[0] // frames, volume[1] // height, volume[2] // width
    except (OSError, ValueError, KeyError, TypeError):  # not ViViT's
        return None


def _only_grid(tokens: int, tubelet: tuple[int, ...]) -> Grid:
    """The one grid of square frames, of more than a single patch each, that has this number of tokens."""
    if tubelet == PUBLISHED_TUBELET and tokens == prod(PUBLISHED_GRID):
        return PUBLISHED_GRID
    grids = [(tokens // side**2, side, side) for side in range(2, isqrt(tokens) + 1) if tokens % side**2 == 0]
    if len(grids) == 1:
        return grids[0]
    if not grids:
        raise WeightsError(f"ViViT's {tokens} positions do not divide into square frames; {REMEDY}.")
    choices = " or ".join(_text(grid) for grid in grids)
    raise WeightsError(f"ViViT's {tokens} positions may be frames x rows x columns of {choices}; {REMEDY}.")


def _text(grid: Grid) -> str:
    return "x".join(map(str, grid))
