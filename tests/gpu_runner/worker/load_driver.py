"""Loads a target with the worker's own loader in an interpreter without torch; prints what it saw.

Run as `python -I -B load_driver.py <worker folder> <job.json> <folder> [statement]`; the statement is
run after the load, with the target in the name `target`.
"""

import json
import sys
from types import ModuleType

for name in ("attngate", "attngate.gpu_runner", "attngate.gpu_runner.worker"):
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = []
package.__path__ = [sys.argv[1]]

from attngate.gpu_runner.worker import wire  # noqa: E402
from attngate.gpu_runner.worker.loader import ImportedElsewhereError, TreeImports  # noqa: E402
from attngate.gpu_runner.worker.target import LoadError, resolve  # noqa: E402

with open(sys.argv[2]) as file:
    job = wire.job_from_json(json.load(file))
imports = TreeImports(job)
answer = {"ok": True}
try:
    imports.install(sys.argv[3])
    target = resolve(imports)
    if len(sys.argv) > 4:
        answer["value"] = eval(sys.argv[4])
    imports.check()
except ImportedElsewhereError as error:
    answer = {"ok": False, "kind": "imported_elsewhere", "message": str(error)}
except LoadError as error:
    answer = {"ok": False, **vars(error)}
answer["violations"] = imports.violations
answer["modules"] = imports.modules()
answer["outside"] = imports.outside_closure()
answer["mixed"] = imports.mixed
answer["strangers"] = list(imports.strangers)
print(json.dumps(answer))
