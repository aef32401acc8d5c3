"""TAP of checks that are functions: what one raises is its failure, and the next one runs."""

number = failed = 0


def run(fn, *args):
    """Its documentation is the name of the check."""
    global number, failed
    number += 1
    try:
        fn(*args)
        print(f"ok {number} - {fn.__doc__}", flush=True)
    except Exception as error:  # whatever it is, the next check runs
        failed += 1
        print(f"not ok {number} - {fn.__doc__}\n# line {error.__traceback__.tb_next.tb_lineno}: "
              + repr(error).replace("\\n", "\n# "), flush=True)


def end():
    """Prints the plan; returns the exit code."""
    print(f"1..{number}", flush=True)
    return int(failed > 0)
