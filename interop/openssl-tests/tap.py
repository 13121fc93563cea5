"""Reads the output of OpenSSL's test recipes (TAP, with subtests indented) into cases with names."""

import re

RESULT = re.compile(r"^( *)(not )?ok (\d+)\b *(?:- *)?(.*)$")
# What evp_test says of a vector that fails: the file and the line.
SOURCE_OF_ERROR = re.compile(r"([\w.-]+:\d+): Source of above error")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Case:
    """A result line, with the results of its subtests."""

    def __init__(self, name, outcome, parts):
        self.name, self.outcome, self.parts = name, outcome, parts


def cases(text, errors=""):
    """What each case of the innermost level came to, by its path of names; `errors` is what went to standard error.

    A case whose subtests passed while it failed stands for itself: a program may die between them. A failed case over a
    file of vectors has those that failed as its parts."""
    found = {}
    for case in tree(text):
        collect(case, (), found)
    sources = SOURCE_OF_ERROR.findall(errors)
    for path in [path for path, outcome in found.items() if outcome == FAILED]:
        own = [source for source in sources if any(source.rpartition(":")[0] in name for name in path)]
        if own:
            del found[path]
            found.update({path + (source,): FAILED for source in own})
    return found


def tree(text):
    """The results of the outermost level. Subtests stand before the result that sums them up, further indented."""
    open_levels = []  # of (indent, results)
    for line in text.splitlines():
        # In newer releases, what a program prints is a comment of the recipe.
        result = RESULT.match(re.sub("^# ", "", line))
        if not result:
            continue
        indent, name = len(result[1]), plain_name(result[4])
        parts = []
        while open_levels and open_levels[-1][0] > indent:
            parts = open_levels.pop()[1] + parts
        if not open_levels or open_levels[-1][0] < indent:
            open_levels.append((indent, []))
        open_levels[-1][1].append(Case(name or result[3], outcome(result), parts))
    return [case for _, results in open_levels for case in results]


def outcome(result):
    """Of a result line; a failure that is expected (to do) is none."""
    directive = re.search(r"# *(skip|todo)\w*", result[4], re.IGNORECASE)
    if directive and (directive[1].lower() == "skip" or result[2]):
        return SKIPPED
    return FAILED if result[2] else PASSED


def plain_name(text):
    """Without directives, and without folders, which differ from run to run."""
    text = re.sub(r" *# *(skip|todo)\w*.*", "", text, flags=re.IGNORECASE)
    return re.sub(r"(?<![\w.-])[\w.+~-]*/(?:[\w.+~-]+/)*", "", text).strip()


def collect(case, above, found):
    path = above + (case.name,)
    inner = {}
    for part in case.parts:
        collect(part, path, inner)
    if not inner or (case.outcome == FAILED and FAILED not in inner.values()):
        inner[path] = case.outcome
    for name, value in inner.items():
        found[unused(name, found)] = value


def unused(path, found):
    """The path, with a number where an earlier case has the same one."""
    number, free = 1, path
    while free in found:
        number += 1
        free = path[:-1] + (f"{path[-1]} ({number})",)
    return free
