"""Property tests are judged by what they find, never by how long one example took on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no_deadline", settings(), deadline=None)
settings.load_profile("no_deadline")
