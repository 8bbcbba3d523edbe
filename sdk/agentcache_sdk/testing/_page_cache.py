"""A prefix cache of pages: which tokens of a prompt are cached, and why not more of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Page:
    """A node of the tree: up to ``page_size`` tokens behind those of its parents; a shorter one is a sequence's end."""

    tokens: Tokens
    parent: Page | None
    key: int
    children: dict[Tokens, Page] = field(default_factory=dict)
    used: int = 0
    pins: int = 0
    lapsed: bool = False
    """A pin on it has run out."""


@dataclass(frozen=True)
class Match:
    """``pages`` from the root on; of ``partial`` the first ``extra`` tokens are equal as well."""

    pages: tuple[Page, ...]
    partial: Page | None
    extra: int


@dataclass(frozen=True)
class Why:
    """Why a prompt was not cached further; ``was`` are tokens that the cache holds in place of the prompt's."""

    code: str
    at_token: int
    detail: str
    was: Tokens = ()


@dataclass(eq=False)
class Pin:
    """A lease on pages until a time of the engine's clock."""

    pages: tuple[Page, ...]
    until: float


@dataclass(eq=False)
class PageCache:
    """Pages in a tree below one root a namespace; the least recently used leaf makes room.

    Args:
        page_size: tokens.
        capacity: pages; ``None``: without end.
    """

    page_size: int
    capacity: int | None = None
    roots: dict[str, Page] = field(default_factory=dict)
    gone: dict[int, bool] = field(default_factory=dict)
    """Keys of evicted pages, and whether a pin on them had run out."""
    pins: list[Pin] = field(default_factory=list)
    count: int = 0
    clock: int = 0

    def match(self, root: str, tokens: Sequence[int]) -> Match:
        """The longest beginning of ``tokens`` that is cached."""
        node, size = self._root(root), self.page_size
        pages: list[Page] = []
        while len(page := tuple(tokens[len(pages) * size : (len(pages) + 1) * size])) == size and page in node.children:
            node = node.children[page]
            pages.append(node)
        rest = tuple(tokens[len(pages) * size : (len(pages) + 1) * size])
        partial = max(node.children.values(), key=lambda child: common(child.tokens, rest), default=None)
        extra = common(partial.tokens, rest) if partial is not None else 0
        return Match(tuple(pages), partial if extra else None, extra)

    def cached(self, root: str, tokens: Sequence[int]) -> int:
        """How many tokens of a prompt need not be computed: all but the last one at most."""
        match = self.match(root, tokens)
        return max(0, min(len(match.pages) * self.page_size + match.extra, len(tokens) - 1))

    def why(self, root: str, tokens: Sequence[int]) -> Why | None:
        """Why not all of a prompt is cached; ``None`` when all is that can be."""
        match, size = self.match(root, tokens), self.page_size
        depth, at = len(match.pages), len(match.pages) * size + match.extra
        if at >= len(tokens) - 1:
            return None
        node = match.pages[-1] if match.pages else self._root(root)
        page = tuple(tokens[depth * size : (depth + 1) * size])
        if len(page) == size and (lapsed := self.gone.get(hash((node.key, page)))) is not None:
            if lapsed:
                return Why("expired", at, "the page was evicted after a pin on it had run out")
            return Why("evicted", at, "the page was evicted")
        if at == 0:
            code = "below_page" if len(tokens) < size else "cold"
            return Why(code, 0, "nothing that begins like this prompt is cached")
        ended = match.partial is not None and match.extra == len(match.partial.tokens) < size
        other = match.partial or next(iter(node.children.values()), None)
        if other is not None and not ended:
            detail = f"the cache knows the first {at} tokens with another continuation"
            return Why("diverged", at, detail, other.tokens[match.extra :])
        return Why("cold", at, f"nothing is cached beyond the first {at} tokens")

    def add(self, root: str, tokens: Sequence[int]) -> None:
        """Keep what was computed of a sequence, as far as there is room."""
        node, size = self._root(root), self.page_size
        self.clock += 1
        for start in range(0, len(tokens), size):
            page = tuple(tokens[start : start + size])
            node.used = self.clock
            if page not in node.children:
                if any(child.tokens[: len(page)] == page for child in node.children.values()):
                    return  # a sequence that ends here is the beginning of a page that is there
                for end in [child for key, child in node.children.items() if page[: len(key)] == key]:
                    self._drop(end)
                node.children[page] = Page(page, node, hash((node.key, page)))
                self.gone.pop(node.children[page].key, None)
                self.count += 1
            node = node.children[page]
            node.used = self.clock
            while self.capacity is not None and self.count > self.capacity:
                if not self.evict_one(keep=self.clock):
                    return

    def evict_one(self, *, keep: int | None = None) -> bool:
        """Evict the leaf that was not used for longest; when only pinned ones are left, the oldest pin ends first."""
        leaves = [page for page in self.pages() if not page.children and page.used != keep]
        free = [page for page in leaves if not page.pins]
        if not free and keep is not None and leaves and self.pins:
            self.unpin(self.pins[0], lapsed=True)
            return self.evict_one(keep=keep)
        if not free:
            return False
        page = min(free, key=lambda page: page.used)
        self._drop(page)
        self.gone[page.key] = page.lapsed
        return True

    def evict_all(self) -> int:
        """Evict every page that is not pinned; how many."""
        evicted = 0
        while self.evict_one():
            evicted += 1
        return evicted

    def pin(self, root: str, tokens: Sequence[int], until: float) -> Pin:
        """Keep what is cached of ``tokens``, up to half of all pages; older pins make room for it.

        The page in which they end is kept where all of them are cached; else it is some other sequence's.
        """
        match = self.match(root, tokens)
        whole = len(match.pages) * self.page_size + match.extra == len(tokens)
        pages = (*match.pages, match.partial) if match.partial is not None and whole else match.pages
        budget = len(pages) if self.capacity is None else self.capacity // 2
        pin = Pin(pages[:budget], until)
        for page in pin.pages:
            page.pins += 1
        self.pins.append(pin)
        while self.capacity is not None and len({page for pin in self.pins for page in pin.pages}) > budget:
            self.unpin(self.pins[0], lapsed=True)
        return pin

    def unpin(self, pin: Pin, *, lapsed: bool = False) -> None:
        if pin in self.pins:
            self.pins.remove(pin)
            for page in pin.pages:
                page.pins -= 1
                page.lapsed = page.lapsed or lapsed

    def lapse(self, now: float) -> None:
        """End the pins whose time is over."""
        for pin in [pin for pin in self.pins if pin.until <= now]:
            self.unpin(pin, lapsed=True)

    def pages(self) -> Iterator[Page]:
        waiting = [child for root in self.roots.values() for child in root.children.values()]
        while waiting:
            page = waiting.pop()
            waiting += page.children.values()
            yield page

    def partings(self, root: str, tokens: Sequence[int]) -> list[int]:
        """Tokens at which other sequences stop being equal to this one: where most do, one a page, eight at most."""
        points: list[int] = []
        node: Page | None = self._root(root)
        for start in range(0, len(tokens), self.page_size):
            if node is None:
                break
            own = tuple(tokens[start : start + self.page_size])
            shared = [(common(own, page), len(page)) for page in node.children]
            parted = [count for count, length in shared if count < min(length, len(own))]
            if parted and (at := start + max(parted, key=lambda count: (parted.count(count), count))):
                points.append(at)
            node = node.children.get(own)
        return points[:8]

    def _drop(self, page: Page) -> None:
        assert page.parent is not None, "roots are never dropped"
        del page.parent.children[page.tokens]
        self.count -= 1
        for pin in [pin for pin in self.pins if page in pin.pages]:
            pin.pages = tuple(kept for kept in pin.pages if kept is not page)

    def _root(self, name: str) -> Page:
        return self.roots.setdefault(name, Page((), None, hash(("root", name))))


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common; found by halving, since comparing slices is fast."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
