"""Tables in object stores."""
