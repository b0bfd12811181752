"""The scenes of the "motions" set: what is in a clip, where it is at every moment, and its pixels.

The middle of a clip is drawn first, by one law for all classes: a few things, one of them near the centre with free
space around it. The class only decides how the clip leaves this middle, forwards and backwards in time, and the second
class of a pair is the first one played backwards. So the middle frame does not betray the class, and the set of frames
does not betray which of its pair it is; their order does. Where a class needs a thing that the middle does not show, it
is added out of sight.

Legend: H height, W width, all lengths in pixels.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

# radius of the largest disc inside each shape, in units of the thing's radius
SHAPES = {"disc": 0.95, "square": 0.7, "hexagon": 0.8, "plate": 0.6}
MARGIN = 10  # of scene around the picture, for the camera to sway
SWAY = 3.0
GAP = 3.0
GROWTH = 1.5
TRAVEL = 0.36  # of the height: how far from the centre a moving thing may go
# of the height; only the first is in the middle and moves, the others are there to distract
FIRST_RADIUS = (0.16, 0.21)
OTHER_RADIUS = (0.07, 0.1)


@dataclass(frozen=True)
class Thing:
    """What does not change: shape, size, colours. `x`, `y`, `angle` are those of the middle frame."""

    shape: str
    radius: float
    colours: np.ndarray
    x: float
    y: float
    angle: float


@dataclass(frozen=True)
class Pose:
    x: float
    y: float
    scale: float = 1.0
    angle: float = 0.0
    opacity: float = 1.0


@dataclass(frozen=True)
class Track:
    """A thing and its pose in every frame; later tracks are drawn over earlier ones."""

    thing: Thing
    poses: list[Pose]


@dataclass(frozen=True)
class Scene:
    """A clip before rendering. `sway` is the camera's offset (x, y) in every frame."""

    background: np.ndarray
    tracks: list[Track]
    sway: np.ndarray
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.sway)

    def reversed(self) -> "Scene":
        tracks = [Track(track.thing, track.poses[::-1]) for track in self.tracks]
        return replace(self, tracks=tracks, sway=self.sway[::-1])

    def render(self, frame: int) -> np.ndarray:
        """One picture `[H, W, 3]` of bytes."""
        shift_x, shift_y = (round(float(value)) for value in self.sway[frame])
        top, left = MARGIN + shift_y, MARGIN + shift_x
        picture = self.background[top : top + self.height, left : left + self.width].copy()
        for track in self.tracks:
            pose = track.poses[frame]
            if pose.opacity > 0:
                _draw(picture, track.thing, replace(pose, x=pose.x - shift_x, y=pose.y - shift_y))
        return np.clip(picture, 0, 255).astype(np.uint8)


def make_scene(kind: str, frames: int, height: int, width: int, rng: np.random.Generator) -> Scene:
    """A clip of the first class of a pair: left, up, approach, clockwise, appear or cover."""
    progress = _progress(frames, rng)
    things = _middle(height, width, rng)
    tracks = MOTIONS[kind](things, progress, height, width, rng)
    return Scene(_background(height, width, rng), tracks, _sway(frames, rng), height, width)


def _progress(frames: int, rng: np.random.Generator) -> np.ndarray:
    """From 0 to 1 with rest at both ends, minus its value in the middle frame: there everything is at home."""
    begin, end = rng.uniform(0, 0.15), rng.uniform(0.85, 1)
    t = np.clip((np.linspace(0, 1, frames) - begin) / (end - begin), 0, 1)
    eased = t + 0.5 * (t * t * (3 - 2 * t) - t)
    return eased - eased[frames // 2]


def _middle(height: int, width: int, rng: np.random.Generator) -> list[Thing]:
    """Two to four things apart from each other; the first is central and has room for every class's motion."""
    while True:
        x, y = width * rng.uniform(0.44, 0.56), height * rng.uniform(0.44, 0.56)
        things = [_thing(x, y, height * rng.uniform(*FIRST_RADIUS), rng)]
        count = int(rng.integers(2, 5))
        for _ in range(60):
            radius = height * rng.uniform(*OTHER_RADIUS)
            other = _thing(rng.uniform(4, width - 4), rng.uniform(4, height - 4), radius, rng)
            if _clear_of_first(other, things[0], height) and all(_apart(other, thing) for thing in things):
                things.append(other)
            if len(things) == count:
                return things


def _thing(x: float, y: float, radius: float, rng: np.random.Generator) -> Thing:
    """One half is bright and the other dark, so that it can be seen turning; a vivid spot tells back from front."""
    colours = np.stack([rng.uniform(170, 255, 3), rng.uniform(0, 70, 3), rng.permutation([240.0, 120.0, 10.0])])
    return Thing(list(SHAPES)[rng.integers(len(SHAPES))], radius, colours, x, y, rng.uniform(0, 2 * math.pi))


def _apart(a: Thing, b: Thing) -> bool:
    return math.hypot(a.x - b.x, a.y - b.y) > a.radius + b.radius + GAP


def _clear_of_first(other: Thing, first: Thing, height: int) -> bool:
    """Outside the cross that the first thing may sweep and the disc it may fill."""
    reach = TRAVEL * height
    beyond_x = max(abs(other.x - first.x) - reach, 0)
    beyond_y = max(abs(other.y - first.y) - reach, 0)
    space = first.radius + other.radius + GAP
    grown = GROWTH * first.radius + other.radius
    return (
        math.hypot(beyond_x, other.y - first.y) > space
        and math.hypot(other.x - first.x, beyond_y) > space
        and math.hypot(other.x - first.x, other.y - first.y) > grown
    )


def _still(thing: Thing, frames: int) -> Track:
    return Track(thing, [Pose(thing.x, thing.y, 1.0, thing.angle)] * frames)


def _moving(thing: Thing, progress: np.ndarray, dx: float, dy: float) -> Track:
    return Track(thing, [Pose(thing.x + dx * p, thing.y + dy * p, 1.0, thing.angle) for p in progress])


def _left(things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator) -> list[Track]:
    distance = -height * TRAVEL * rng.uniform(1.5, 2)
    return [*(_still(t, len(progress)) for t in things[1:]), _moving(things[0], progress, distance, 0)]


def _up(things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator) -> list[Track]:
    distance = -height * TRAVEL * rng.uniform(1.5, 2)
    return [*(_still(t, len(progress)) for t in things[1:]), _moving(things[0], progress, 0, distance)]


def _approach(
    things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator
) -> list[Track]:
    first, rate = things[0], 2 * math.log(GROWTH) * rng.uniform(0.85, 1)
    poses = [Pose(first.x, first.y, math.exp(rate * p), first.angle) for p in progress]
    return [*(_still(t, len(progress)) for t in things[1:]), Track(first, poses)]


def _clockwise(
    things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator
) -> list[Track]:
    first, turn = things[0], math.radians(rng.uniform(90, 150))
    poses = [Pose(first.x, first.y, 1.0, first.angle + turn * p) for p in progress]
    return [*(_still(t, len(progress)) for t in things[1:]), Track(first, poses)]


def _appear(
    things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator
) -> list[Track]:
    """Before the middle: the first thing appears. After it: another one does, which the middle does not show."""
    frames, early = len(progress), rng.random() < 0.5
    at = rng.uniform(0.18, 0.38) if early else rng.uniform(0.62, 0.82)
    opacity = np.clip((np.linspace(0, 1, frames) - at) / 0.06 + 0.5, 0, 1)
    if early:
        coming, standing = things[0], things[1:]
    else:
        coming, standing = _elsewhere(things, height, width, rng), things
    poses = [Pose(coming.x, coming.y, 1.0, coming.angle, float(o)) for o in opacity]
    return [*(_still(t, frames) for t in standing), Track(coming, poses)]


def _cover(things: list[Thing], progress: np.ndarray, height: int, width: int, rng: np.random.Generator) -> list[Track]:
    """After the middle: the first thing covers a smaller one. Before it: it comes from elsewhere and hides one."""
    frames, first = len(progress), things[0]
    room = first.radius * SHAPES[first.shape]
    smaller = [t for t in things[1:] if 0.95 * t.radius < room and _free_path(first, t, things)]
    if smaller and rng.random() < 0.5:
        goal = smaller[0]
        moved = _ramp(frames, rng.uniform(0.55, 0.62), rng.uniform(0.85, 0.95))
        start, end = (first.x, first.y), (goal.x, goal.y)
        standing = things[1:]
    else:
        moved = _ramp(frames, rng.uniform(0.05, 0.15), rng.uniform(0.38, 0.45))
        away = _elsewhere(things, height, width, rng)
        start, end = (away.x, away.y), (first.x, first.y)
        hidden = replace(_thing(first.x, first.y, room, rng), shape="disc")
        standing = [*things[1:], hidden]
    path = [(start[0] + (end[0] - start[0]) * m, start[1] + (end[1] - start[1]) * m) for m in moved]
    return [*(_still(t, frames) for t in standing), Track(first, [Pose(x, y, 1.0, first.angle) for x, y in path])]


MOTIONS = {"left": _left, "up": _up, "approach": _approach, "clockwise": _clockwise, "appear": _appear, "cover": _cover}


def _ramp(frames: int, begin: float, end: float) -> np.ndarray:
    return np.clip((np.linspace(0, 1, frames) - begin) / (end - begin), 0, 1)


def _elsewhere(things: list[Thing], height: int, width: int, rng: np.random.Generator) -> Thing:
    """One more thing of the first one's size, in as free a place as can be found."""
    places = rng.uniform((0.15 * width, 0.18 * height), (0.85 * width, 0.82 * height), (40, 2))
    x, y = max(places, key=lambda place: min(math.dist(place, (other.x, other.y)) - other.radius for other in things))
    return _thing(float(x), float(y), height * rng.uniform(*FIRST_RADIUS), rng)


def _free_path(mover: Thing, goal: Thing, things: list[Thing]) -> bool:
    """Whether the straight way to the goal stays clear of all others."""
    dx, dy = goal.x - mover.x, goal.y - mover.y
    length = math.hypot(dx, dy)
    for other in things:
        if other is mover or other is goal:
            continue
        along = np.clip(((other.x - mover.x) * dx + (other.y - mover.y) * dy) / length**2, 0, 1)
        if math.hypot(mover.x + along * dx - other.x, mover.y + along * dy - other.y) < mover.radius + other.radius:
            return False
    return True


def _sway(frames: int, rng: np.random.Generator) -> np.ndarray:
    """A hand-held camera: two slow oscillations in each direction."""
    t = np.linspace(0, 1, frames)[:, None, None]
    cycles, phases = rng.uniform(0.5, 3, (1, 2, 2)), rng.uniform(0, 2 * math.pi, (1, 2, 2))
    return rng.uniform(0, SWAY / 2, 2) * np.sin(2 * math.pi * cycles * t + phases).sum(axis=2)


def _background(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Dull coloured noise at three scales."""
    tall, wide = height + 2 * MARGIN, width + 2 * MARGIN
    colour = rng.uniform(90, 150) + rng.uniform(-20, 20, 3)
    picture = np.tile(colour.astype(np.float32), (tall, wide, 1))
    for cells, strength in ((3, 18), (9, 12), (28, 8)):
        grid = rng.normal(0, strength, (cells, cells * 4 // 3, 3)).astype(np.float32)
        picture += _stretch(_stretch(grid, tall, 0), wide, 1)
    return picture


def _stretch(grid: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Linear interpolation along one axis."""
    place = np.linspace(0, grid.shape[axis] - 1, size)
    low = np.minimum(place.astype(int), grid.shape[axis] - 2)
    shape = [1, 1, 1]
    shape[axis] = size
    share = (place - low).astype(np.float32).reshape(shape)
    return np.take(grid, low, axis) * (1 - share) + np.take(grid, low + 1, axis) * share


def _draw(picture: np.ndarray, thing: Thing, pose: Pose) -> None:
    radius = thing.radius * pose.scale
    top, bottom = max(int(pose.y - radius - 1), 0), min(int(pose.y + radius + 2), picture.shape[0])
    left, right = max(int(pose.x - radius - 1), 0), min(int(pose.x + radius + 2), picture.shape[1])
    if top >= bottom or left >= right:
        return
    y, x = np.ogrid[top:bottom, left:right]
    c, s = np.float32(math.cos(pose.angle) / radius), np.float32(math.sin(pose.angle) / radius)
    dx, dy = (x - pose.x).astype(np.float32), (y - pose.y).astype(np.float32)
    u, v = c * dx + s * dy, c * dy - s * dx
    depth = _inside(thing.shape, u, v) * radius
    alpha = (np.clip(depth + 0.5, 0, 1) * pose.opacity)[..., None]
    first, second, third = thing.colours.astype(np.float32)
    paint = np.where((v > 0)[..., None], first, second)
    paint = np.where((np.hypot(u - 0.35, v + 0.3) < 0.25)[..., None], third, paint)
    paint = np.where((depth < 1.2)[..., None], np.float32(15), paint)
    area = picture[top:bottom, left:right]
    area += alpha * (paint - area)


def _inside(shape: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """How far inside the shape's edge a point lies, in radii; negative outside. No shape leaves the unit circle."""
    if shape == "disc":
        return 0.95 - np.hypot(u, v)
    if shape == "square":
        return 0.7 - np.maximum(np.abs(u), np.abs(v))
    if shape == "hexagon":
        return 0.8 - np.maximum(np.abs(v), 0.866 * np.abs(u) + 0.5 * np.abs(v))
    return np.minimum(0.78 - np.abs(u), 0.6 - np.abs(v))
