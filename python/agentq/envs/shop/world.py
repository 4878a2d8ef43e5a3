"""The catalogue of `shop` and its search. Fixed: every product is drawn once from a constant."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from agentq.envs.lexicon import fixed_hash, words

BRANDS = words(
    "Nova Apex Terra Luna Orion Delta Summit Vista Echo Prime Solis Metro Alto Bravo Cobalt Dune Ember Fable Glacier "
    "Haven"
)
COLORS = words("black white navy red green grey brown pink blue yellow purple orange")
_CLOTHES = (words("cotton wool"), words("waterproof washable warm lightweight"), words("small medium large"))
_SHOES = (words("leather canvas"), words("waterproof washable padded lightweight"), words("7 8 9 10 11"))
_BEDDING = (words("cotton linen"), words("washable soft warm quilted"), words("twin queen king"))
_KITCHEN = (words("steel ceramic"), words("nonstick stackable portable heavy"), words("single double family"))
_DEVICES = (words("metal bamboo"), words("wireless portable foldable bright"), ())
_BAGS = (words("leather nylon"), words("waterproof padded foldable slim"), ())
CATEGORIES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "clothes": (words("jacket shirt dress sweater hoodie skirt coat vest scarf"), _CLOTHES),
    "shoes": (words("boots sandals sneakers slippers"), _SHOES),
    "bedding": (words("blanket pillow curtain towel rug"), _BEDDING),
    "kitchen": (words("mug bowl pan kettle bottle pot"), _KITCHEN),
    "devices": (words("lamp speaker charger keyboard mouse clock"), _DEVICES),
    "bags": (words("backpack wallet purse suitcase"), _BAGS),
}
PAGE_SIZE = 4
MAX_PAGES = 5
_PER_KIND = 24
_HIDDEN = 0.15  # share of products whose title omits one attribute


@dataclass(frozen=True, slots=True)
class Product:
    """One article. `kind` is its type ("jacket"); the title may omit one of `attributes`; `price` in dollars."""

    number: int
    title: str
    kind: str
    category: str
    attributes: tuple[str, ...]
    price: int
    colors: tuple[str, ...]
    sizes: tuple[str, ...]  # empty if there is nothing to choose


@lru_cache(maxsize=1)
def products() -> tuple[Product, ...]:
    """`[products]` the catalogue; the index is the product's number in urls. Titles are unique."""
    rng = random.Random("catalogue")
    drafts = [
        draft
        for category, (kinds, (materials, features, sizes)) in CATEGORIES.items()
        for kind in kinds
        for draft in _drafts(rng, category, kind, materials, features, sizes)
    ]
    rng.shuffle(drafts)
    return tuple(Product(number, *draft) for number, draft in enumerate(drafts))


_Draft = tuple[str, str, str, tuple[str, ...], int, tuple[str, ...], tuple[str, ...]]


def _drafts(
    rng: random.Random,
    category: str,
    kind: str,
    materials: tuple[str, ...],
    features: tuple[str, ...],
    sizes: tuple[str, ...],
) -> list[_Draft]:
    """The products of one kind: each has two features, a material, common colors and a price near the usual one."""
    made: dict[str, _Draft] = {}
    common, usual = rng.sample(COLORS, 3), rng.randrange(15, 90)
    while len(made) < _PER_KIND:
        attributes = (*rng.sample(features, 2), rng.choice(materials))
        named = list(attributes)
        if rng.random() < _HIDDEN:
            named.remove(rng.choice(attributes))
        title = " ".join((rng.choice(BRANDS), *named, kind))
        extra = rng.sample([color for color in COLORS if color not in common], rng.randint(1, 3))
        colors = tuple(sorted((*common, *extra), key=COLORS.index))
        price = _price(rng, usual)
        made.setdefault(title, (title, kind, category, attributes, price, colors, sizes))
    return list(made.values())


def _price(rng: random.Random, usual: int) -> int:
    """Whole dollars, never a multiple of 5, so that no price equals a limit."""
    price = round(usual * rng.uniform(0.6, 1.6))
    return price + 1 if price % 5 == 0 else price


def product(number: str) -> Product | None:
    """The product with a number from a url, or None."""
    known = number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(products())
    return products()[int(number)] if known else None


@lru_cache(maxsize=1)
def by_title() -> dict[str, Product]:
    """Products by their unique titles."""
    return {item.title: item for item in products()}


@lru_cache(maxsize=1)
def _by_word() -> dict[str, tuple[int, ...]]:
    index: dict[str, list[int]] = {}
    for item in products():
        for word in {*item.title.lower().split(), *item.attributes}:
            index.setdefault(word, []).append(item.number)
    return {word: tuple(numbers) for word, numbers in index.items()}


@lru_cache(maxsize=4096)
def search(query: str) -> tuple[Product, ...]:
    """Products that share words with `query` in title or attributes: most first, then in an arbitrary fixed order."""
    shared: Counter[int] = Counter()
    for word in set(query.lower().split()):
        shared.update(_by_word().get(word, ()))
    found = sorted(shared, key=lambda n: (-shared[n], fixed_hash("rank", n)))
    return tuple(products()[number] for number in found[: PAGE_SIZE * MAX_PAGES])


def random_query(rng: random.Random) -> str:
    """Two attributes and the kind of some product."""
    item = rng.choice(products())
    return " ".join((*rng.sample(item.attributes, 2), item.kind))
