"""What a row of a plan claims, as one digest; a row that was changed has another."""

import hashlib
import json

from tilewise.service.db import models
from tilewise.service.plans.rows import Json


def digest(row: models.Plan, plan: Json | None, script: str | None) -> str:
    """SHA-256 of a plan and its script, of this module for this target and toolchain, hex."""
    told = [row.sha256, row.target, row.toolchain.identity, plan, script]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
