"""The one seam to disks and object stores, and its backends."""
