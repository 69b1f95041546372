"""Start of a worker process: `python -I -B <this file> ROLE <fd to read> <fd to write>`.

ROLE is judge, candidate or identity. It is started as a file in the user's interpreter, which need not
have attngate installed and whose own copy, if it has one, must not be used. So the names of the
packages above are made here, and only this folder can be imported through them.
"""

import os
import sys
from types import ModuleType

if __name__ == "__main__":
    for name in ("attngate", "attngate.gpu_runner", "attngate.gpu_runner.worker"):
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = []
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    from attngate.gpu_runner.worker.main import main

    main(sys.argv[1:])
