"""One bin in, new data files and their manifest out; the same function on every engine."""
