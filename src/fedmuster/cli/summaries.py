"""One line about a policy or world, from its docstring."""

import inspect
import re


def summary(kind: type) -> str:
    """The first line of the docstring."""
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0].rstrip(".")


def paper(kind: type) -> str:
    """First author and year of the first reference in the docstring, or the title without authors.

    Example:
        >>> from fedmuster.policies import BSFL
        >>> paper(BSFL)
        'D. Ben Ami et al., 2025'
        >>> from fedmuster.policies import FedSUV
        >>> paper(FedSUV)
        'FedSUV'
    """
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    found = re.search(r"References: (.*?)(?: Example:|$)", text)
    if found is None:
        return "–"
    if not re.match(r"[A-Z]\. ", found[1]):  # no initial: it begins with the title
        return re.split(r"[:,.]", found[1])[0]
    author = re.split(r",| et al| and ", found[1])[0]
    year = re.search(r"\b(?:19|20)\d\d\b", found[1])
    return f"{author} et al." + (f", {year[0]}" if year else "")
