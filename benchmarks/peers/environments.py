"""Install each peer, by name and version, from the package registries into an environment of its own.

    python -m benchmarks.peers.environments [NAME …]

They live under build/peers (BENCH_PEERS chooses another folder), which git ignores and `make clean` removes. A finished
environment leaves a stamp; while the stamp fits, nothing is done.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.peer import NODE, PEERS, Peer

HOUSE: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"


class PeerUnavailableError(Exception):
    """A peer can not be installed here; the message says why."""


def folder(name: str) -> Path:
    """Name the folder of a peer's environment."""
    chosen = os.environ.get("BENCH_PEERS")
    return (Path(chosen) if chosen else HOUSE / "build" / "peers") / name


def command(peer: Peer) -> list[str]:
    """Return how to start a peer's program, installing the peer if need be.

    Raises:
        PeerUnavailableError: It can not be installed.
    """
    if peer.kind == "octop":
        return [sys.executable, str(PROGRAMS / peer.program)]
    place = installed(peer)
    if peer.kind == "node":
        # Node looks for packages from the program's own folder upwards.
        program = place / peer.program
        for each in PROGRAMS.glob("*.mjs"):
            shutil.copyfile(each, place / each.name)
        return [str(_node() / "bin" / "node"), str(program)]
    return [str(place / "bin" / "python"), str(PROGRAMS / peer.program)]


def installed(peer: Peer) -> Path:
    """Return the folder of a peer's environment, made now if it is not there."""
    place = folder(peer.name)
    if peer.kind == "node":
        node = _node()
        if not _is_ready(place, peer.packages):
            _announce(peer.name)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            (place / "package.json").write_text('{"private": true, "type": "module"}\n')
            path = f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
            npm = [str(node / "bin" / "npm"), "install", "--no-audit", "--no-fund", "--loglevel=error", *peer.packages]
            _run(npm, cwd=place, env={**os.environ, "PATH": path})
            _make_ready(place, peer.packages)
        return place
    _make_virtual(place, peer.packages, _python(peer.python_min), peer.name)
    return place


def _node() -> Path:
    """Return the environment that has node and npm."""
    place = folder("node")
    _make_virtual(place, (NODE,), sys.executable, "node")
    return place


def _make_virtual(place: Path, packages: tuple[str, ...], python: str, name: str) -> None:
    if _is_ready(place, packages):
        return
    _announce(name)
    shutil.rmtree(place, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", python, str(place)])
        _run([uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *packages])
    else:
        _run([python, "-m", "venv", str(place)])
        _run(
            [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        )
    _make_ready(place, packages)


def _python(oldest: tuple[int, int]) -> str:
    """Find a Python that is new enough: this one, so that all run the same, else the next on the PATH, of pyenv or of uv."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    wanted = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 4)]
    places = [found for name in wanted if (found := shutil.which(name))]
    # pyenv puts shims on the PATH, which refuse to start a version that is not switched on: look behind them.
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places += [str(each) for name in wanted for each in sorted(root.glob(f"*/bin/{name}"))]
    for place in places:
        answer = subprocess.run([place, "-c", "import ensurepip"], capture_output=True, check=False)
        if answer.returncode == 0:
            return place
    if shutil.which("uv"):
        return f"{oldest[0]}.{oldest[1]}"  # uv brings it
    message = f"needs Python {oldest[0]}.{oldest[1]} or newer, and none is on the PATH"
    raise PeerUnavailableError(message)


def _announce(name: str) -> None:
    print(f"benchmarks: installing {name} …", file=sys.stderr, flush=True)


def _stamp(packages: tuple[str, ...], place: Path) -> str:
    return hashlib.sha256("\0".join([*packages, str(place), sys.version]).encode()).hexdigest()


def _is_ready(place: Path, packages: tuple[str, ...]) -> bool:
    try:
        return (place / ".ready").read_text() == _stamp(packages, place)
    except OSError:
        return False


def _make_ready(place: Path, packages: tuple[str, ...]) -> None:
    (place / ".ready").write_text(_stamp(packages, place))


def _run(command: list[str], **options: object) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if answer.returncode != 0:
        message = f"{' '.join(command[:4])} … failed: {(answer.stderr or answer.stdout).strip()[-800:]}"
        raise PeerUnavailableError(message)


def main() -> None:
    names = sys.argv[1:]
    for peer in PEERS:
        if not names or peer.name in names:
            try:
                print(f"{peer.name:<16} {installed(peer)}")
            except PeerUnavailableError as error:
                print(f"{peer.name:<16} not available: {error}")


if __name__ == "__main__":
    main()
