"""A self-contained HTML report: metrics, protocol, training curves, confusions and failures."""

from base64 import b64encode
from html import escape
from pathlib import Path

from fixformer.evaluation.baselines import Baselines
from fixformer.evaluation.charts import Rows, confusion_chart, learning_chart, recall_chart, training_chart
from fixformer.evaluation.result import Evaluation
from fixformer.runtime.console import note, printable
from fixformer.runtime.figures import can_draw, optional
from fixformer.runtime.files import replacing, write_text

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem} h2{font-size:1.15rem;margin-top:2rem} img{max-width:100%}
table{border-collapse:collapse} td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}
.big{font-size:2rem;font-weight:600} .small{color:#666;font-size:.85rem} code{font-size:.85rem}
.warning{border-left:4px solid #c60;padding-left:.8rem}
"""


def write_report(
    evaluation: Evaluation,
    output: Path,
    *,
    log: Rows | None = None,
    baselines: Baselines | None = None,
    title: str = "Evaluation",
    extra: str = "",
) -> Path:
    """report.html and its charts as PNG files; charts that cannot be drawn are left out.

    Args:
        log: rows of the run's log, for the training curves.
        baselines: linear classifiers on the same videos.
        extra: HTML that is appended to the page.
    """
    charts: dict[str, bytes] = {}
    if not can_draw():
        note('the report has no charts; install matplotlib: pip install "fixformer[plots]"')
    else:
        with optional("the charts of the report"):
            charts = _charts(evaluation, log, baselines)
            for name, png in charts.items():
                with replacing(output / f"{name}.png") as temporary:
                    temporary.write_bytes(png)
    titles = {"curves": "Training", "confusion": "Confusion matrix", "classes": "Classes"}
    drawn = [(titles[name], charts[name]) for name in titles if name in charts]
    images = "".join(f"<h2>{name}</h2>{embedded(png, name)}" for name, png in drawn)
    compared = _baselines(baselines, evaluation, charts.get("learning")) if baselines else ""
    body = _metrics(evaluation) + compared + images + _mistakes(evaluation) + _failures(evaluation) + extra
    head = f'<meta charset="utf-8"><title>{text(title)}</title><style>{STYLE}</style>'
    path = output / "report.html"
    write_text(
        path, f"<!doctype html><html lang=en><head>{head}</head><body><h1>{text(title)}</h1>{body}</body></html>\n"
    )
    return path


def text(value: object) -> str:
    """Any text as it is shown in the page: nothing in it is taken for HTML or commands."""
    return escape(printable(str(value)))


def _charts(evaluation: Evaluation, log: Rows | None, baselines: Baselines | None) -> dict[str, bytes]:
    curves = training_chart(log) if log else None
    charts = {"curves": curves} if curves else {}
    if baselines:
        charts["learning"] = learning_chart(baselines)
    return {**charts, "confusion": confusion_chart(evaluation), "classes": recall_chart(evaluation)}


def _metrics(evaluation: Evaluation) -> str:
    m, protocol = evaluation.metrics, evaluation.protocol
    rows = [
        ("top-5, videos", m.video_top5),
        ("mean per class, videos", m.mean_class),
        ("top-1, clips", m.clip_top1),
        ("top-5, clips", m.clip_top5),
    ]
    table = "".join(f"<tr><td>{name}</td><td>{value:.2%}</td></tr>" for name, value in rows)
    warning = f"<p class=warning>{text(evaluation.warning)}</p>" if evaluation.warning else ""
    return (
        f'{warning}<p class="big">{m.video_top1:.2%} <span class="small">top-1 of {protocol.scored} videos '
        f"({protocol.listed} listed)</span></p><table>{table}</table>"
        f'<p class="small">{text(protocol)}<br>{text(protocol.model)}, step {protocol.step}</p>'
    )


def _baselines(baselines: Baselines, evaluation: Evaluation, curve: bytes | None) -> str:
    """What the model adds to a linear classifier, and whether more videos would help."""
    names = {"linear classifier on pixels": baselines.pixels, "linear classifier on image features": baselines.features}
    rows = "".join(
        f"<tr><td>{name}</td><td>{value:.1%}</td></tr>"
        for name, value in {**names, "this model": evaluation.metrics.video_top1}.items()
        if value is not None
    )
    remarks = "<br>".join(map(text, baselines.remarks()))
    return (
        f"<h2>What the model adds</h2><table>{rows}</table>"
        + (f'<p class="small">{remarks}</p>' if remarks else "")
        + f"<h2>Would more videos help?</h2><p>{text(baselines.more_videos)}.</p>"
        + (embedded(curve, "Learning curve") if curve else "")
    )


def _mistakes(evaluation: Evaluation) -> str:
    if not evaluation.mistakes:
        return "<h2>Mistakes</h2><p>None.</p>"
    rows = "".join(
        f"<tr><td>{text(found.label)}</td><td>{text(found.taken_for)}</td><td>{len(found.files)}</td>"
        f"<td>{'<br>'.join(f'<code>{text(name)}</code>' for name in found.files)}</td></tr>"
        for found in evaluation.mistakes
    )
    head = "<tr><th>true</th><th>taken for</th><th>videos</th><th>files</th></tr>"
    return f"<h2>Most frequent mistakes</h2><table>{head}{rows}</table>"


def _failures(evaluation: Evaluation) -> str:
    if not evaluation.failures:
        return ""
    rows = "".join(
        f"<tr><td><code>{text(found.path)}</code></td><td>{text(found.message)}</td></tr>"
        for found in evaluation.failures
    )
    return f"<h2>Not scored: {len(evaluation.failures)} videos</h2><table>{rows}</table>"


def embedded(png: bytes, title: str) -> str:
    """An image inside the page."""
    return f'<img alt="{text(title)}" src="data:image/png;base64,{b64encode(png).decode()}">'
