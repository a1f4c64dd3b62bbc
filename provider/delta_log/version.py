"""The release of this distribution; the only place that states it."""

VERSION = "0.1.0"
