"""`python -m trunkline.cli`, for where the command itself is not on the path."""

from trunkline.cli.main import main

main()
