from agentcache.cache import prefix_tree
from agentcache.cache.hashing import namespace_root
from agentcache.cache.prefix_tree import PrefixTree
from agentcache.cache.tokens import PagedTokens

SIZE = 4
ROOT = namespace_root("model")


def paged(ids, root=ROOT):
    return PagedTokens(ids, SIZE, root)


def publish(tree: PrefixTree, ids, first_page: int, output=False, root=ROOT):
    """Insert the full pages of ``ids`` as a lease would, and let go."""
    tokens = paged(ids, root)
    held = tree.match(tokens, len(tokens)).node
    tree.hold(held)
    depth = len(held.path())
    for index in range(depth, tokens.num_full_pages):
        page = first_page + index
        node = tree.insert(held, tokens.key(index), tokens.page_bytes(index), page, output=output)
        assert node is not None
        tree.hold(node)
        tree.release(held)
        held = node
    tree.release(held)
    assert tree.check() == []
    return held


def matched(tree, ids):
    tokens = paged(ids)
    return tree.match(tokens, len(ids)).tokens(SIZE)


def evict_all(tree):
    order = []
    while (node := tree.evict()) is not None:
        order.append(node.page)
        assert tree.check() == []
    return order


def test_a_match_ends_where_the_tokens_part_even_inside_a_page():
    tree = PrefixTree(SIZE)
    publish(tree, range(12), 0)
    assert matched(tree, [*range(10), 99, 99, 99]) == 10
    assert matched(tree, [0, 1, 99]) == 2
    assert matched(tree, [99]) == 0
    assert matched(tree, [*list(range(12)), 5]) == 12


def test_the_longest_partial_page_is_found_among_many_siblings():
    tree = PrefixTree(SIZE)
    head = [1, 1, 1, 1]
    for n in range(40):
        publish(tree, [*head, n, n + 1, n + 2, n + 3], 10 + n)
    assert matched(tree, [*head, 7, 8, 9, 99]) == 7
    assert matched(tree, [*head, 39, 40, 0, 0]) == 6
    assert matched(tree, [*head, 100, 0, 0, 0]) == 4


def test_another_root_shares_nothing():
    tree = PrefixTree(SIZE)
    publish(tree, range(8), 0)
    other = paged(range(8), namespace_root("other"))
    assert tree.match(other, 8).tokens(SIZE) == 0


def test_a_hash_collision_costs_a_hit_and_never_serves_other_tokens(monkeypatch):
    monkeypatch.setattr("agentcache.cache.tokens.page_digest", lambda data: b"k" * 16)
    monkeypatch.setattr(prefix_tree, "page_key", lambda parent, tokens: b"k" * 16)
    tree = PrefixTree(SIZE)
    publish(tree, [1, 2, 3, 4], 0)
    assert matched(tree, [1, 2, 3, 4, 9]) == 4
    assert matched(tree, [5, 6, 7, 8, 9]) == 0
    node = tree.match(paged([5, 6, 7, 8]), 4).node
    tree.hold(node)
    assert tree.insert(node, b"k" * 16, paged([5, 6, 7, 8]).page_bytes(0), 1, output=False) is None
    tree.release(node)


def test_the_end_of_a_chain_leaves_before_its_beginning():
    tree = PrefixTree(SIZE)
    publish(tree, range(20), 0)
    assert evict_all(tree) == [4, 3, 2, 1, 0]


def test_least_recently_used_chains_leave_whole_and_first():
    tree = PrefixTree(SIZE)
    for n, name in enumerate((100, 200, 300)):
        publish(tree, [name] * 12, n * 10)
    touched = tree.match(paged([100] * 12), 12).node
    tree.hold(touched)
    tree.hit(touched)
    tree.release(touched)
    assert evict_all(tree) == [12, 11, 10, 22, 21, 20, 2, 1, 0]


def test_a_shared_beginning_outlives_the_tails_that_used_it():
    tree = PrefixTree(SIZE)
    publish(tree, [1] * 8, 0)
    for n in range(5):
        publish(tree, [1] * 8 + [50 + n] * 4, 10 * (n + 1))
    order = evict_all(tree)
    assert order[-2:] == [1, 0]
    assert order[:5] == [12, 22, 32, 42, 52]


def test_output_that_was_never_hit_leaves_before_any_prompt():
    tree = PrefixTree(SIZE)
    publish(tree, [1] * 8, 0, output=True)
    publish(tree, [2] * 8, 10)
    publish(tree, [3] * 8, 20, output=True)
    assert evict_all(tree)[:4] == [1, 0, 21, 20]


def test_the_prompt_under_recent_output_keeps_its_own_place_in_time():
    tree = PrefixTree(SIZE)
    for n in range(3):  # three prompts with a generated page behind each, the first one oldest
        publish(tree, [n] * 4, 10 * n)
        publish(tree, [n] * 4 + [9] * 4, 10 * n, output=True)
    assert evict_all(tree) == [1, 11, 21, 0, 10, 20]


def test_what_is_held_is_not_evicted_and_holding_an_end_protects_the_whole_chain():
    tree = PrefixTree(SIZE)
    end = publish(tree, range(16), 0)
    publish(tree, [9] * 8, 20)
    tree.hold(end)
    assert evict_all(tree) == [21, 20]
    assert tree.num_live == 4
    tree.release(end)
    assert evict_all(tree) == [3, 2, 1, 0]
    assert len(tree) == 0 and not list(tree.roots())


def test_touching_a_page_keeps_it_although_what_follows_it_goes():
    tree = PrefixTree(SIZE)
    publish(tree, [1] * 12, 0)
    publish(tree, [2] * 8, 10)
    tree.touch(tree.match(paged([1] * 8), 8).node)
    assert evict_all(tree) == [2, 11, 10, 1, 0]


def test_pages_that_one_namespace_gives_up_leave_the_order_of_the_others_alone():
    tree = PrefixTree(SIZE, by_space=True)
    other = namespace_root("other")
    publish(tree, [1] * 8, 0)
    publish(tree, [2] * 8, 10, root=other)
    publish(tree, [3] * 8, 20)
    assert tree.evict(other).page == 11 and tree.check() == []
    assert evict_all(tree) == [1, 0, 10, 21, 20]


def test_evicted_keys_are_remembered_but_not_without_bound():
    tree = PrefixTree(SIZE, remember=3)
    publish(tree, range(20), 0)
    evict_all(tree)
    tokens = paged(range(20))
    assert [tree.evicted(tokens.key(i)) is not None for i in range(5)] == [True, True, True, False, False]


def test_a_page_that_came_back_and_left_again_is_remembered_from_then_on():
    tree = PrefixTree(SIZE, remember=2)
    for head in (1, 2, 1, 3):
        publish(tree, [head] * 4, head)
        assert evict_all(tree) == [head]
    known = [tree.evicted(paged([head] * 4).key(0)) is not None for head in (1, 2, 3)]
    assert known == [True, False, True]


def hit(tree, ids):
    node = tree.match(paged(ids), len(ids)).node
    tree.hold(node)
    tree.hit(node)
    tree.release(node)
    return node


def test_one_hit_does_not_yet_make_a_page_shared():
    tree = PrefixTree(SIZE)
    publish(tree, [1] * 4, 0)
    hit(tree, [1] * 4)
    publish(tree, [2] * 4, 10)
    assert evict_all(tree) == [0, 10]


def test_what_was_known_of_a_page_that_left_is_known_of_the_one_before_it():
    tree = PrefixTree(SIZE)
    publish(tree, [1] * 8, 0)
    end = [hit(tree, [1] * 8) for _ in range(2)][-1]
    assert tree.evict() is end
    assert end.parent.used == end.used
    publish(tree, [2] * 4, 10)
    assert evict_all(tree) == [10, 0]
