"""The one rule for the size of a scaled picture, for decoders and for clips."""


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
