"""``python -m fedmuster``."""

from fedmuster.cli import main

if __name__ == "__main__":
    main()
