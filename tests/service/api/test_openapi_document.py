import json
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_document_is_committed(client, request):
    text = json.dumps(client.get("/openapi.json").json(), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, "if this change is meant, run with --update-golden"


def test_every_body_has_an_example():
    schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
    for name in ("JobRequest", "LookupRequest", "TokenRequest"):
        assert schemas[name]["examples"]
