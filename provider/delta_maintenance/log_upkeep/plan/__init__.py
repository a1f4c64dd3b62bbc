"""What the log needs: pure functions of its files."""
