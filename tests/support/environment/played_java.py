"""A Java that is found and does nothing, for programs that play Spark's launcher."""

from __future__ import annotations

from pathlib import Path


def java_home(directory: Path) -> str:
    """Write the Java into a directory; return the value of ``JAVA_HOME``."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    return str(directory)
