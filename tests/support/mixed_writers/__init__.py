"""Several kinds of writers on one table at once, each in processes of its own, and the reckoning afterwards."""
