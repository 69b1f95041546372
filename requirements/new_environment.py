"""Make a virtual environment, or say in one line why this Python cannot make one.

Usage: python3 requirements/new_environment.py FOLDER

An environment of the same Python that still works is left as it is. The file also runs on Pythons
that are too old for attngate, in order to say so.
"""

import subprocess
import sys

NEEDED = (3, 11)


def main():
    """Make the environment named on the command line; ends with a message where that fails."""
    folder = sys.argv[1]
    if sys.version_info < NEEDED:
        sys.exit(
            "attngate needs Python 3.11 or newer, and {} is {}.{}: name another one, as in "
            "'make demo PYTHON=python3.12'".format(sys.executable, *sys.version_info)
        )
    if works(folder):
        return
    try:
        import ensurepip  # noqa: F401  (only its presence matters: some systems split it off)
        import venv
    except ImportError as error:
        sys.exit(
            f"{sys.executable} has no {error.name}, so it cannot make a virtual environment: install "
            "your system's venv package, or name another Python with PYTHON="
        )
    print(f"making {folder} with Python {sys.version.split()[0]}", flush=True)
    venv.create(folder, clear=True, with_pip=True)


def works(folder):
    """True where the folder is an environment of this very Python version with a pip that starts."""
    ask = "import sys, pip; print(sys.version)"
    try:
        answer = subprocess.run(
            [folder + "/bin/python", "-I", "-c", ask], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return answer.stdout.strip() == sys.version.strip()


if __name__ == "__main__":
    main()
