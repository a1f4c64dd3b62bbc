"""Writing checkpoints; reading them is in ``delta_log.log``."""
