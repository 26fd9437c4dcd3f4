"""How hypothesis runs: with no deadline, as first calls compile, and the same cases in CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("unskew", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("unskew")
