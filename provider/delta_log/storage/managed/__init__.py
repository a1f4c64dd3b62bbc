"""Tables whose commits a catalog ratifies (protocol section "Catalog-managed tables")."""
