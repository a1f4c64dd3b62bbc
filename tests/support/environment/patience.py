"""How long tests wait for what must come. It is no claim about speed: only what hangs takes so long, also on a machine that is busy."""

PATIENCE_SECONDS = 900
