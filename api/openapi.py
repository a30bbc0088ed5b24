"""The OpenAPI page also shows the bodies that the pipeline's own validation reads."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from api.schemas import DocumentIn

_REF = "#/components/schemas/{model}"
DOCUMENT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF.format(model=DocumentIn.__name__)}}},
    }
}


def describe_bodies(app: FastAPI) -> None:
    """Adds the schemas that ``DOCUMENT_BODY`` refers to."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        page = generate()
        document = DocumentIn.model_json_schema(ref_template=_REF)
        page["components"]["schemas"].update({**document.pop("$defs"), DocumentIn.__name__: document})
        return page

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend the page
