"""Tables on a local or mounted disk."""
