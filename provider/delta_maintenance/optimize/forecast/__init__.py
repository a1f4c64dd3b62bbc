"""What a run would write and gain, before it runs."""
