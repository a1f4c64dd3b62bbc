"""Real object stores on this machine, started by the tests that need them: MinIO, Azurite, fake-gcs-server."""
