"""Several kinds of writers on one table at once, each in a process of its own, and the verdict on the table."""
