"""The run folder: what survives the server."""
