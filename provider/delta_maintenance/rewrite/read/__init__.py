"""The rows of the files of a bin that are not deleted."""
