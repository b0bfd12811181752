"""The one rule for the size of a scaled picture, for decoders and for clips."""

from fixformer.errors import InputError

# a strip of 2 x 4096 pixels, enlarged to a short side of 224, would take 300 MB a frame
MOST_STRETCHED = 64


def scaled_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """Width and height with the shorter side at `short_side`, the longer one rounded down; unchanged if None.

    The released code computes `floor(long / short * short_side)` in floating point. That is one pixel less where the
    exact size is a whole number and the quotient was rounded down (196 x 427 at 224: 487 instead of 488), which is
    so for about one in 7000 combinations of sizes, and for none in `tests/golden/sampling.json`.
    """
    if short_side is None:
        return width, height
    if width <= height:
        return short_side, height * short_side // width
    return width * short_side // height, short_side


def require_scalable(width: int, height: int, short_side: int) -> None:
    """Refuse to enlarge a picture so long and narrow that hardly any of it would be in a crop."""
    if short_side > min(height, width) and max(height, width) > MOST_STRETCHED * min(height, width):
        shape = f"a picture of {width} x {height} pixels is more than {MOST_STRETCHED} times as long as it is wide"
        raise InputError(f"{shape} and cannot be enlarged to a short side of {short_side}; leave the video out.")
