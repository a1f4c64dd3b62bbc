"""What is kept of each night, and what is told of it."""
