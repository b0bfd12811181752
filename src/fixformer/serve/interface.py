"""The HTTP interface: paths, parameters and answers. Everything heavy happens in `workshop`'s processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fixformer import __version__
from fixformer.serve import responses
from fixformer.serve.counters import Metrics
from fixformer.serve.guard import Guard, refusal_response
from fixformer.serve.refusal import Refusal, not_ready
from fixformer.serve.settings import ServeSettings
from fixformer.serve.uploads import drain, received
from fixformer.serve.workshop import Job, Workshop

NDJSON = "application/x-ndjson"
PAGE_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": responses.Error, "description": "no file, or a damaged form"},
    401: {"model": responses.Error, "description": "the token is missing or wrong"},
    403: {"model": responses.Error, "description": "a request from a page of another site"},
    408: {"model": responses.Error, "description": "the upload took too long"},
    413: {"model": responses.Error, "description": "the upload is too large"},
    415: {"model": responses.Error, "description": "neither a video nor a form"},
    421: {"model": responses.Error, "description": "a name by which this server is not known"},
    422: {"model": responses.Error, "description": "not a video, one beyond a limit, or a wrong parameter"},
    429: {"model": responses.Error, "description": "too many requests wait; Retry-After says for how long"},
    500: {"model": responses.Error, "description": "a bug"},
    503: {"model": responses.Error, "description": "not ready; Retry-After says for how long"},
    504: {"model": responses.Error, "description": "it took too long and was stopped"},
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FIELDS = {"properties": {"file": _BINARY["schema"]}, "required": ["file"], "additionalProperties": False}
_FORM = {"schema": {"type": "object", **_FIELDS}}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": _FORM, "application/octet-stream": _BINARY, "video/*": _BINARY},
    }
}
_ABOUT = (
    "Send the video as the body, or as the field `file` of a form. With `Accept: application/x-ndjson` the answer is a "
    'line of JSON for every step: `{"progress": {...}}`, at the end `{"result": {...}}` or `{"error": {...}}`.'
)

TopK = Annotated[int, Query(ge=1, le=1000, description="how many guesses")]
Views = Annotated[str | None, Query(pattern="^[1-9][0-9]?x[1-3]$", description="CLIPSxCROPS; by default the recipe's")]
Frames = Annotated[int, Query(ge=0, le=64, description="how many of the frames that the model saw to return")]
Scores = Annotated[bool, Query(description="also the combined scores (logits) of all classes, in their order")]
Seconds = Annotated[float | None, Query(ge=0.05, le=3600, allow_inf_nan=False)]


def make_app(settings: ServeSettings, token: str = "") -> FastAPI:
    """The application; it starts and ends the process with the model with itself."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with TemporaryDirectory(prefix="fixformer-serve-", ignore_cleanup_errors=True) as uploads:  # for its owner only
            workshop = Workshop(settings, Path(uploads), metrics)
            workshop.on_failure = getattr(app.state, "on_failure", workshop.on_failure)
            app.state.workshop, app.state.uploads = workshop, Path(uploads)
            await workshop.start()
            try:
                yield
            finally:
                await workshop.stop()

    # the usual pages of documentation load scripts from elsewhere
    app = FastAPI(title="fixformer", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.settings, app.state.metrics = settings, metrics
    _add_work(app)
    _add_state(app)
    _add_page(app)
    _add_errors(app)
    paths = {getattr(route, "path", "") for route in app.routes}

    def guarded(inner: ASGIApp) -> Guard:
        return Guard(inner, settings, token, metrics, paths)

    app.add_middleware(guarded)
    if token:
        _describe_token(app)
    return app


def _add_work(app: FastAPI) -> None:
    shared: dict[str, Any] = {"openapi_extra": _BODY, "responses": _ERRORS, "description": _ABOUT, "tags": ["videos"]}

    @app.post("/v1/predict", response_model=responses.PredictAnswer, summary="Classify a video", **shared)
    async def predict(
        request: Request, top_k: TopK = 5, views: Views = None, frames: Frames = 0, scores: Scores = False
    ) -> Response:
        return await _work(request, "predict", {"top_k": top_k, "views": views, "frames": frames, "scores": scores})

    @app.post("/v1/timeline", response_model=responses.TimelineAnswer, summary="What happens when", **shared)
    async def timeline(request: Request, window: Seconds = None, stride: Seconds = None) -> Response:
        return await _work(request, "timeline", {"window": window, "stride": stride})

    @app.post("/v1/explain", response_model=responses.ExplainAnswer, summary="Where the model looked", **shared)
    async def explain(request: Request) -> Response:
        return await _work(request, "explain", {})


async def _work(request: Request, task: str, options: dict[str, Any]) -> Response:
    """Receive the video, do the work, answer: at once, or step by step."""
    state = request.app.state
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(state.workshop.place())
            upload = received(request, state.uploads, state.settings, state.metrics)
            path, name = await stack.enter_async_context(upload)
            job = Job(task, path, name, options)
            if NDJSON in request.headers.get("accept", ""):
                return _StepsResponse(state.workshop, job, stack.pop_all())
            return JSONResponse(await _unless_gone(request, state.workshop, job))
    except Refusal as refusal:
        if refusal.status not in (408, 499):
            await drain(request)
        return refusal_response(refusal)


async def _unless_gone(request: Request, workshop: Workshop, job: Job) -> dict[str, Any]:
    """The result of a job, which is stopped if the client closes the connection."""
    work = asyncio.create_task(workshop.run(job, lambda progress: None))
    gone = asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Refusal(499, "gone", "the client closed the connection.")
        return work.result()
    finally:
        for task in (work, gone):
            task.cancel()
        with suppress(asyncio.CancelledError, Refusal):
            await work


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _StepsResponse(StreamingResponse):
    """The steps of a job, each as a line of JSON. A client that is gone stops the work.

    `held`, the upload and the place, is given back when the work ends, however slowly the client reads.
    """

    def __init__(self, workshop: Workshop, job: Job, held: AsyncExitStack) -> None:
        super().__init__(self._lines(), media_type=NDJSON, headers={"X-Accel-Buffering": "no"})  # for nginx
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._work = asyncio.create_task(self._do(workshop, job, held))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._work.cancel()

    async def _do(self, workshop: Workshop, job: Job, held: AsyncExitStack) -> None:
        put = self._messages.put_nowait
        last = Refusal(500, "bug", "this is a bug of fixformer; the server's log has the details.").to_json()
        try:
            async with held:
                last = {"result": await workshop.run(job, lambda progress: put({"progress": progress}))}
        except Refusal as refusal:
            last = {**refusal.to_json(), "status": refusal.status}
        finally:
            put(last)

    async def _lines(self) -> AsyncIterator[bytes]:
        message: dict[str, Any] = {"progress": {}}
        while "progress" in message:
            message = await self._messages.get()
            yield json.dumps(message).encode() + b"\n"


def _add_state(app: FastAPI) -> None:
    settings: ServeSettings = app.state.settings

    @app.get("/v1/model", response_model=responses.ModelAnswer, responses=_some(401, 403, 421, 503), tags=["server"])
    async def model() -> Response:
        """The model, its labels, and the limits of this server."""
        if app.state.workshop.model is None:
            return refusal_response(not_ready())
        names = ("upload_bytes", "duration", "pixels", "frames", "concurrent", "queue", "seconds")
        limits = {name: getattr(settings, name) for name in names}
        return JSONResponse({**app.state.workshop.model, "limits": limits})

    @app.get("/health", response_model=responses.Status, responses=_some(403, 421), tags=["server"])
    async def health() -> Response:
        """Whether the server runs."""
        return JSONResponse({"status": "ok"})

    @app.get("/ready", response_model=responses.Status, responses=_some(403, 421, 503), tags=["server"])
    async def ready() -> Response:
        """Whether the model is loaded."""
        return refusal_response(not_ready()) if app.state.workshop.model is None else JSONResponse({"status": "ready"})

    metrics_text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    shared: dict[str, Any] = {"response_class": Response, "tags": ["server"]}

    @app.get("/metrics", responses={**metrics_text, **_some(401, 403, 421)}, **shared)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(app.state.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _some(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _ERRORS[status] for status in statuses}


def _add_page(app: FastAPI) -> None:
    """The files of the page, each at an address of its own: no path from a request is looked up in a directory."""
    for entry in resources.files("fixformer.serve").joinpath("page").iterdir():
        kind = PAGE_TYPES[Path(entry.name).suffix]
        response = Response(entry.read_bytes(), media_type=kind)

        address = "/" if entry.name == "index.html" else f"/page/{entry.name}"
        app.router.add_route(address, partial(_the_same, response), methods=["GET"])


async def _the_same(response: Response, request: Request) -> Response:
    return response


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def wrong_parameter(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][1:]))
        sentence = f"{name}={first.get('input')!r}"[:200] + f": {first['msg']}."
        await drain(request)
        return refusal_response(Refusal(422, "parameter", sentence))

    @app.exception_handler(HTTPException)
    async def no_such_page(request: Request, error: HTTPException) -> Response:
        refusal = Refusal(error.status_code, "http", f"{error.detail}; see /openapi.json for what there is.")
        response = refusal_response(refusal)
        response.headers.update(error.headers or {})
        return response


def _describe_token(app: FastAPI) -> None:
    """Say in the OpenAPI description where a token is needed."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        schema = plain()
        schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in schema["paths"].items():
            for method in methods.values():
                if path.startswith(("/v1/", "/metrics")):
                    method["security"] = [{"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]
