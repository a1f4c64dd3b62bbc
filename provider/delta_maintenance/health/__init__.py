"""What a table needs: facts from one reading, findings about them, and the operations that would help."""
