"""What a client gets where no route answers."""

from __future__ import annotations

import pytest

from trio_ollama.server.asgi import App
from trio_ollama.server.fallbacks import install_fallbacks


def app() -> App:
    app = App("fallbacks")
    install_fallbacks(app)

    @app.get("/api/tags")
    async def tags() -> str:
        return "tags"

    @app.post("/api/show")
    async def show() -> str:
        return "show"

    @app.get("/v1/models/<model>")
    async def model(model: str) -> str:
        return model

    return app


@pytest.mark.parametrize("path", ["/", "/api", "/api/tagsx", "/unknown/", "/api//tags", "/v1/models/a/b"])
async def test_unknown_path(path: str) -> None:
    response = await app().test_client().get(path)
    assert (response.status_code, await response.get_data()) == (404, b"404 page not found")
    assert response.headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/tags"), ("GET", "/api/show"), ("OPTIONS", "/api/tags")])
async def test_known_path_with_another_method(method: str, path: str) -> None:
    response = await app().test_client().open(path, method=method)
    assert (response.status_code, await response.get_data()) == (405, b"405 method not allowed")
    assert response.headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize(
    ("method", "path", "status", "location"),
    [
        ("GET", "/api/tags/", 301, "/api/tags"),
        ("GET", "/api/tags/?a=1&b=%20", 301, "/api/tags?a=1&b=%20"),
        ("HEAD", "/api/tags/", 307, "/api/tags"),
        ("POST", "/api/show/", 307, "/api/show"),
        ("GET", "/v1/models/caf%C3%A9/", 301, "/v1/models/caf%C3%A9"),
    ],
)
async def test_trailing_slash(method: str, path: str, status: int, location: str) -> None:
    response = await app().test_client().open(path, method=method)
    assert (response.status_code, response.headers["Location"]) == (status, location)


async def test_trailing_slash_with_another_method_is_unknown() -> None:
    assert (await app().test_client().post("/api/tags/")).status_code == 404
