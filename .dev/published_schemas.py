"""Write the JSON Schemas of the contract into the documentation.

Called by `./dev lint --fix`; a test says which file is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from delta_maintenance.published_schemas import published_schemas, text_of

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "reference"


def main() -> None:
    for name, schema in published_schemas().items():
        path, text = DIRECTORY / name, text_of(schema)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{name}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
