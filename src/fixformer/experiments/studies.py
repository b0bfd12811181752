"""The paper's ablations as tables: a study is its rows, a row is settings on a recipe. Adding one is adding rows.

The paper's numbers are top-1 of Something-Something V2 in percent; what they are compared with here is the sign of a
difference, never the number itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fixformer.config.model import AttentionName
from fixformer.errors import UnknownName


@dataclass(frozen=True)
class Times:
    """A setting in proportion to the recipe's: `Times("clip.frames", 2)` is twice as many frames."""

    setting: str
    factor: float


@dataclass(frozen=True)
class Row:
    """One model of a study.

    Args:
        name: unique in its study.
        settings: on top of the recipe; a `Times` stands under the setting that it changes.
        paper: its accuracy in the paper.
        against: the row it is compared with; the first of the study if empty.
        claim: what the paper says of it where it prints no number.
        recipe: the base of this row, in studies that compare bases.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: float | None = None
    against: str = ""
    claim: Literal["better", "worse"] | None = None
    recipe: str | None = None


@dataclass(frozen=True)
class Study:
    """Rows that are trained alike and compared in pairs.

    Args:
        about: what the rows differ in.
        source: where the paper has it; empty if it has not.
        note: what one should know when comparing with the paper.
    """

    name: str
    about: str
    source: str
    rows: tuple[Row, ...]
    note: str = ""

    def against(self, row: Row) -> Row | None:
        """What a row is compared with; None for a row that is a reference itself."""
        name = row.against or self.rows[0].name
        return None if name == row.name else self.row(name)

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def paper_difference(self, row: Row) -> float | None:
        """The paper's difference to the row it is compared with, in points; of a claim in words, only the sign."""
        other = self.against(row)
        if other is None:
            return None
        if row.claim:
            return 1.0 if row.claim == "better" else -1.0
        if row.paper is None or other.paper is None:
            return None
        return round(row.paper - other.paper, 2)


PLAIN = {"association": "none", "fixation": "none"}
NA = {"association": "both", "fixation": "none"}
FF = {"association": "none", "fixation": "cooperative"}
BOTH = {"association": "both", "fixation": "cooperative"}
OURS: dict[str, Any] = {"attention": "linear", **BOTH}


def _qk(sources: str, shared: bool) -> dict[str, Any]:
    return {**OURS, "fixation_sources": sources, "fixation_shared": shared}


def _application() -> tuple[Row, ...]:
    """Other attentions, each plain, with either module and with both; compared with itself without modules."""
    methods: dict[str, tuple[dict[str, Any], tuple[float | None, ...]]] = {
        "Performer": ({"attention": "performer"}, (58.82, 61.57, 59.97, 63.50)),
        "Linear Transformer": ({"attention": "linear", "kernel": "elu1"}, (60.42, 62.84, 61.87, 64.76)),
        "cosFormer": ({"attention": "cosformer"}, (61.18, 63.23, 61.94, 64.97)),
        "softmax": ({"attention": "softmax"}, (66.20, None, 65.94, 65.94)),
    }
    modules = {"": PLAIN, " + NA": NA, " + FF": FF, " + NA + FF": BOTH}
    return tuple(
        Row(f"{method}{added}", {**settings, **parts}, paper, against=method)
        for method, (settings, papers) in methods.items()
        for (added, parts), paper in zip(modules.items(), papers, strict=True)
    )


# Of the paper's other tables, in the attention of that name.
_PLAIN_PAPER = {"linear": 61.67, "performer": 58.82, "cosformer": 61.18, "softmax": 66.20}


def _attentions() -> tuple[Row, ...]:
    """Every attention that the model's setting has, without modules, beside ours."""
    plain = [Row(name, {"attention": name, **PLAIN}, _PLAIN_PAPER.get(name)) for name in get_args(AttentionName)]
    elu1 = Row("linear, elu + 1", {"attention": "linear", "kernel": "elu1", **PLAIN}, 60.42)
    return (Row("ours", OURS, 65.46), *plain, elu1)


def _pilot() -> tuple[Row, ...]:
    """The three models that every base must tell apart, on each base."""
    models = {"linear": {"attention": "linear", **PLAIN}, "softmax": {"attention": "softmax", **PLAIN}, "ours": OURS}
    bases = {"frozen": "ablate_frozen", "tuned": "ablate_tuned", "patches": "ablate_patch"}
    papers = {"linear": 61.67, "softmax": 66.20, "ours": 65.46}
    return tuple(
        Row(f"{base}: {name}", settings, papers[name], against=f"{base}: linear", recipe=recipe)
        for base, recipe in bases.items()
        for name, settings in models.items()
    )


_ALL = (
    Study(
        "modules",
        "spatial shift (SS), temporal shift (TS) and feature fixation (FF) on plain linear attention",
        "Table 3",
        (
            Row("none", {"attention": "linear", **PLAIN}, 61.67),
            Row("SS", {"attention": "linear", "association": "space", "fixation": "none"}, 61.99),
            Row("TS", {"attention": "linear", "association": "time", "fixation": "none"}, 64.18),
            Row("SS + TS", {"attention": "linear", **NA}, 64.28),
            Row("FF", {"attention": "linear", **FF}, 62.57),
            Row("SS + TS + FF", OURS, 65.46),
        ),
        note="On Kinetics-400 the paper has the same signs, with differences of 0.2 to 0.7 points.",
    ),
    Study(
        "fixation",
        "what the gate is computed from, and whether query and key share it",
        "Table 4",
        (
            Row("no fixation", {"attention": "linear", **NA}, 64.28),
            Row("QK separate", {"attention": "linear", **NA, "fixation": "separate"}, 64.46),
            Row("QK cooperative", _qk("qk", False), 64.61),
            Row("QK cooperative, shared", _qk("qk", True), 64.78),
            Row("QKV cooperative", _qk("qkv", False), 65.33),
            Row("QKV cooperative, shared", _qk("qkv", True), 65.46),
        ),
    ),
    Study(
        "merge",
        "how query, key and value are merged for the gate",
        "Section 5.3",
        (
            Row("concatenated", {**OURS, "fixation_merge": "concat"}),
            Row("added", {**OURS, "fixation_merge": "add"}, claim="worse"),
            Row("multiplied", {**OURS, "fixation_merge": "multiply"}, claim="worse"),
        ),
        note="The paper says of both others: about 0.5 points less.",
    ),
    Study(
        "kernel",
        "the kernel of linear attention, in the full model",
        "Table 5",
        (
            Row("ReLU", {**OURS, "kernel": "relu"}, 65.46),
            Row("ELU + 1", {**OURS, "kernel": "elu1"}, 60.42),
            Row("sigmoid", {**OURS, "kernel": "sigmoid"}, 63.26),
            Row("none", {**OURS, "kernel": "identity"}, claim="worse"),
        ),
        note="Without a kernel, says the paper, the network cannot converge properly. Its 60.42 for ELU + 1 is also "
        "what it prints for the Linear Transformer without modules; with both it prints 64.76 (study application).",
    ),
    Study(
        "pattern",
        "which tokens attend to each other",
        "Table 6",
        (
            Row("factorised", {**OURS, "pattern": "factorised"}, 65.46),
            Row("joint", {**OURS, "pattern": "joint"}, 58.17),
            Row("windowed", {**OURS, "pattern": "windowed"}, 61.08),
        ),
    ),
    Study(
        "variants",
        "half and twice the frames, 1.5 times the resolution",
        "Table 7",
        (
            Row("default", OURS, 65.46),
            Row("S", {**OURS, "clip.frames": Times("clip.frames", 0.5)}, 63.48),
            Row("H", {**OURS, "clip.frames": Times("clip.frames", 2)}, 65.67),
            Row("HR", {**OURS, "clip.size": Times("clip.size", 1.5)}, 65.85),
        ),
    ),
    Study(
        "order",
        "association before fixation, or after",
        "Section 5.3",
        (
            Row("association first", {**OURS, "order": "association_first"}, 65.46),
            Row("fixation first", {**OURS, "order": "fixation_first"}, 64.64),
        ),
    ),
    Study(
        "shift",
        "tokens in the same row and column, or in a square, up to this far",
        "Table 11",
        (
            Row("cross, 1", {**OURS, "shift_shape": "cross", "shift_space": 1}, 65.5),
            Row("square, 1", {**OURS, "shift_shape": "square", "shift_space": 1}, 65.5),
            Row("cross, 2", {**OURS, "shift_shape": "cross", "shift_space": 2}, 65.4),
            Row("square, 2", {**OURS, "shift_shape": "square", "shift_space": 2}, 65.2, against="cross, 2"),
        ),
    ),
    Study(
        "application",
        "neighbourhood association (NA) and feature fixation (FF) in other attentions",
        "Table 9",
        _application(),
        note="The paper's softmax is XViT, which has a temporal shift of its own; here it has none without NA.",
    ),
    Study(
        "attention",
        "every attention of the package in the same backbone, without modules, beside ours",
        "Tables 3, 9",
        _attentions(),
    ),
    Study(
        "views",
        "one trained model, scored on so many clips of each video",
        "Figure 4",
        tuple(Row(f"{clips} view{'s' * (clips > 1)}", {**OURS, "eval.views": f"{clips}x1"}) for clips in range(1, 11)),
        note="The figure prints no numbers.",
    ),
    Study(
        "beyond",
        "what came after the paper, each with our modules, beside ours",
        "",
        (
            Row("ours", OURS),
            Row("ours, elu + 1", {**OURS, "kernel": "elu1"}),
            Row("MALA", {**OURS, "attention": "mala"}, against="ours, elu + 1"),
            Row("InLine", {**OURS, "attention": "inline"}),
            Row("rank-augmented", {**OURS, "attention": "rank"}, against="ours, elu + 1"),
            Row("polar kernel", {**OURS, "kernel": "polar"}),
            Row("output gate", {**OURS, "output_gate": True}),
            Row("local 3x3", {**OURS, "local": True}),
        ),
    ),
    Study(
        "pilot",
        "the base on which rows are told apart best per hour",
        "Tables 3, 9",
        _pilot(),
    ),
)

STUDIES: dict[str, Study] = {study.name: study for study in _ALL}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    return STUDIES[name]
