"""The former home of :mod:`fedmuster.flower`."""
