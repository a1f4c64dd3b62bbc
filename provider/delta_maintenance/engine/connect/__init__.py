"""Spark Connect: its server, its sessions, and rewrites that outlive their client."""
