"""One bin that several Spark tasks write together."""
