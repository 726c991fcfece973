"""What journals say: tables and figures. Nothing here runs anything."""
