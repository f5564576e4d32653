"""The T4 results format, schema 1.0.0, as a JSON schema."""

NUMBER, TEXT, LIST, OBJECT = ({"type": kind} for kind in ("number", "string", "array", "object"))

TIMES = ("compilation_time", "framework", "search_algorithm", "validation")
INVALIDITY = ("timeout", "compile", "runtime", "correctness", "constraints", "correct")

MEASUREMENT = {**OBJECT, "properties": {"name": TEXT, "value": NUMBER, "unit": TEXT}}

RESULT = {
    **OBJECT,
    "required": ["configuration", "times", "invalidity", "correctness"],
    "properties": {
        "timestamp": TEXT,
        "configuration": OBJECT,
        "objectives": LIST,
        "times": {**OBJECT, "properties": {**dict.fromkeys(TIMES, NUMBER), "runtimes": LIST}},
        "invalidity": {"enum": list(INVALIDITY)},
        "correctness": NUMBER,
        "measurements": {**LIST, "items": MEASUREMENT},
    },
}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **OBJECT,
    "properties": {
        "schema_version": {**TEXT, "pattern": r"^[0-9]{1,}.[0-9]{1,}.[0-9]{1,}$"},
        "results": {**LIST, "items": RESULT},
    },
}
