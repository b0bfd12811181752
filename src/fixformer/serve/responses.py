"""The shapes of answers, for the OpenAPI description; `work` makes their content."""

from pydantic import BaseModel, Field


class Problem(BaseModel):
    code: str = Field(description="for programs, such as too_large")
    message: str = Field(description="for people: what, which value, what to try")


class Error(BaseModel):
    error: Problem


class Video(BaseModel):
    seconds: float
    frames: int
    width: int
    height: int
    fps: float | None


class Guess(BaseModel):
    label: str
    probability: float


class Frame(BaseModel):
    time: float = Field(description="seconds from the first frame")
    image: str = Field(description="a data: address of a JPEG")


class PredictAnswer(BaseModel):
    file: str
    video: Video
    views: str
    top: list[Guess]
    frames: list[Frame] = []
    scores: list[float] | None = Field(None, description="of all classes, in the order of the labels")


class Segment(BaseModel):
    start: float
    end: float
    label: str
    certainty: float


class Track(BaseModel):
    label: str
    scores: list[float]


class TimelineAnswer(BaseModel):
    file: str
    video: Video
    seconds: float
    window: float
    stride: float
    times: list[float] = Field(description="the middle of every window")
    segments: list[Segment]
    tracks: list[Track] = Field(description="probabilities over time of the classes with the highest ones")


class Overlay(BaseModel):
    image: str = Field(description="a data: address of a JPEG")
    overlay: str = Field(description="the same with the heat over it, a data: address of a PNG")


class Layer(BaseModel):
    layer: str
    tokens: int
    entropy: float
    top_tenth: float
    to_softmax: float
    gamma: float | None


class ExplainAnswer(BaseModel):
    file: str
    video: Video
    label: str
    probability: float
    heat_of: str
    frames: list[Overlay]
    layers: list[Layer]
    notes: list[str]


class Limits(BaseModel):
    upload_bytes: int
    duration: float
    pixels: int
    frames: int
    concurrent: int
    queue: int
    seconds: float


class ModelAnswer(BaseModel):
    model: str
    parameters: int
    labels: list[str]
    frames: int
    size: int
    views: str
    version: str
    limits: Limits


class Status(BaseModel):
    status: str
