"""Change the repository's address everywhere it stands: ``repository.py NEW_URL``.

The one source is ``[project.urls] Repository`` in pyproject.toml; a test checks that no file names
another.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def repository_url(root: Path = ROOT) -> str:
    """Read the repository's address from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return project["project"]["urls"]["Repository"]


def files_with(address: str, root: Path = ROOT) -> list[Path]:
    """List the tracked text files that name an address."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    found = []
    for name in filter(None, listing.stdout.split("\0")):
        path = root / name
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if address in text:
            found.append(path)
    return found


def main(new: str) -> int:
    """Replace the address."""
    new = new.rstrip("/").removesuffix(".git")
    if not new.startswith("https://"):
        print(f"got {new!r}, expected an address that starts with https://", file=sys.stderr)
        return 2
    old = repository_url()
    for path in files_with(old):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
