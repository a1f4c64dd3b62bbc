"""What a finished bin leaves beside its files, for the commit and for a later try."""
