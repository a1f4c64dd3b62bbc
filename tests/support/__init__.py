"""What tests share: tables, runs of our own code, checks of results, and the environment."""

from pathlib import Path

#: The root of the repository.
ROOT = Path(__file__).resolve().parents[2]
