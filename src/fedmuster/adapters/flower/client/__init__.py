"""The mods of ClientApps. Light: in a deployment every message starts a process."""
