"""The guides' diffs, applied to the libraries' own examples."""

import os
import re

GUIDES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "guides")


def example(page, path):
    """The page, the file at path with the lines of its diff, and how many of them are new."""
    with open(os.path.join(GUIDES, page)) as f:
        text = f.read()
    with open(path) as f:
        return text, *patched(f.read(), re.search(r"```diff\n(.*?)```", text, re.S).group(1))


def patched(text, diff):
    """text with the lines of the page's diff in place of its own."""
    own, at, changed = text.splitlines(), 0, 0
    for line in diff.splitlines():
        sign, rest = line[:1], line[1:]
        if sign == "+":
            own.insert(at, rest)
            at, changed = at + 1, changed + 1
        else:
            found = own.index(rest, at)
            if sign == "-":
                del own[found]
                at = found
            else:
                at = found + 1
    return "\n".join(own) + "\n", changed
