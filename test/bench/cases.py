"""The cases of a test program: its functions, but for its helpers. Prints TAP."""
import sys


def run(*helpers):
    """Runs all functions of the program but the named ones, in the order of their text, and ends it."""
    cases = [function for name, function in vars(sys.modules["__main__"]).items()
             if callable(function) and function.__module__ == "__main__" and name not in helpers]
    failed = 0
    for number, case in enumerate(cases, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__.replace('_', ' ')}")
        except AssertionError as why:
            failed += 1
            print(f"not ok {number} - {case.__name__.replace('_', ' ')}\n# {why}")
    print(f"1..{len(cases)}")
    sys.exit(failed > 0)
