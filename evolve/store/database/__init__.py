"""The SQLite file: schema, connection, lease, blobs."""
