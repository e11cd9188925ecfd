# SPDX-License-Identifier: Apache-2.0
"""Runs the unittest files of this folder and prints TAP; a test that hangs shows where."""

import faulthandler
import os
import sys
import time
import unittest

SECONDS = 60 * int(os.environ.get("BELLOWS_PATIENCE", "1"))
if os.environ.get("BELLOWS_LONG"):
    SECONDS = 7000


class Tap(unittest.TestResult):
    """One point for each test, whose name is the first line of its description."""

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()
        # Ends the whole run: a thread that waits in the library cannot be stopped.
        faulthandler.dump_traceback_later(SECONDS, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def point(self, word, test, more=""):
        print(f"{word} {self.testsRun} - {test.shortDescription() or test.id()}{more}", flush=True)

    def complain(self, test, error):
        self.point("not ok", test)
        for line in self._exc_info_to_string(error, test).splitlines():
            print(f"# {line}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.point("ok", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.complain(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.complain(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            print(f"# {subtest}")
            for line in self._exc_info_to_string(error, test).splitlines():
                print(f"# {line}", flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.point("ok", test, f" # SKIP {reason}")


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
    suite = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), chosen)
    result = Tap()
    print(f"1..{suite.countTestCases()}", flush=True)
    suite.run(result)
    sys.exit(not result.wasSuccessful())
