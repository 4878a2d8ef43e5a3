"""Random words, names, numbers and dates. Pseudo-words are made of syllables; a tenth of them is never trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from agentq.envs.lexicon import FIRST_NAMES, LAST_NAMES, MONTHS, fixed_hash, words

Rng = np.random.Generator
T = TypeVar("T")

_ONSETS = words(
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sc sh sk sl sm sn sp st t th tr v w x y z"
)
_VOWELS = words("a e i o u a e i o u ai ea ee ie oa oo ou y")
_CODAS = ("", "", "", *words("b ck d f g k l ll m n nd ng nk nt p r rd rk rn rt s sk ss st t th x z"))
COMMON = words(
    "account action address all amount apple archive arrow art back bag ball bank bar basket bed bell big bird "
    "blog blue board book bottle box bread bridge bright brown bus button cake call camera camp car card cat "
    "chair change chart chat check city clean clear clock close cloud club coat code coffee cold color contact "
    "cook copy corner country course cup dance data date day deep delete desk dog door draft dream drink drive "
    "dry early east edit email end event eye face family farm fast field file film filter fire first fish floor "
    "flower folder food forest forward free fresh friend front fruit full game garden gate gift glass gold good "
    "grass green group guide hair half hall hand hat head health help hill history home horse hotel house ice "
    "idea image inbox info island item job juice key kitchen lake lamp land language large last leaf left letter "
    "level light like lime line link list little local long low lunch mail main map market menu message metal "
    "milk mind minute mirror money month moon morning music name near new news night north note number ocean "
    "office oil old open orange order outer page paint paper park part party pay pen pencil people phone photo "
    "piano picture pink place plan plane plant plate play point post price print profile public purple quick "
    "quiet rain read red reply report rest right ring river road rock room rose round row sale salt sand save "
    "school sea search seat second send service set shared ship shoe shop short show side silver simple site size "
    "sky sleep slow small snow soft song sound south space sport spring square star start state station step "
    "stone store storm story street strong student style sugar summer sun supper table tall tea team test text "
    "thin ticket time title today top total tower town toy track train travel tree trip type upper user valley "
    "video view village visit voice walk wall warm watch water week west white wide wild wind window winter wood "
    "word work world year yellow young zoo"
)


@dataclass(frozen=True, slots=True)
class Words:
    """Draws words. `held_out`: only pseudo-words that training never draws."""

    rng: Rng
    held_out: bool = False

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(self.rng.integers(n))

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return bool(self.rng.random() < p)

    def shuffled(self, items: list[str]) -> list[str]:
        """The items in another order."""
        return [items[i] for i in self.rng.permutation(len(items))]

    def pseudo(self) -> str:
        """A pronounceable word of one to three syllables that means nothing."""
        while True:
            count = 1 + int(self.rng.random() < 0.85) + int(self.rng.random() < 0.3)
            word = "".join(self.one(_ONSETS) + self.one(_VOWELS) for _ in range(count)) + self.one(_CODAS)
            if reserved(word) is self.held_out and len(word) > 3:
                return word

    def word(self) -> str:
        """A pseudo-word in three of four cases, else a common word."""
        return self.pseudo() if self.held_out or self.chance(0.75) else self.one(COMMON)

    def name(self) -> str:
        """A first name, often invented."""
        return self.pseudo().capitalize() if self.held_out or self.chance(0.7) else self.one(FIRST_NAMES)

    def surname(self) -> str:
        """A last name, often invented."""
        return self.pseudo().capitalize() if self.held_out or self.chance(0.7) else self.one(LAST_NAMES)

    def digits(self, n: int) -> str:
        """`n` digits, the first not 0."""
        return str(int(self.rng.integers(10 ** (n - 1), 10**n)))

    def code(self) -> str:
        """Mixed letters and digits, as in passwords."""
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        return "".join(letters[self.below(len(letters))] for _ in range(3 + self.below(5)))

    def email(self) -> str:
        """An address."""
        return f"{self.word().lower()}@{self.word().lower()}.{self.one(('com', 'org', 'net', 'it'))}"

    def phone(self) -> str:
        """A phone number in one of three forms."""
        forms = (f"555-{self.below(10000):04d}", f"{self.digits(3)}-{self.digits(3)}-{self.digits(4)}", self.digits(7))
        return self.one(forms)

    def day(self) -> str:
        """A date as on `booking`."""
        month, days = MONTHS[self.below(len(MONTHS))]
        return f"{month} {1 + self.below(days)}"

    def date(self) -> str:
        """A date in one of three forms."""
        m, d, y = 1 + self.below(12), 1 + self.below(28), 1990 + self.below(40)
        return self.one((self.day(), f"{m:02d}/{d:02d}/{y}", f"{y}-{m:02d}-{d:02d}"))

    def time(self) -> str:
        """A time of day."""
        return f"{1 + self.below(12)}:{self.one(('00', '15', '30', '45'))} {self.one(('AM', 'PM'))}"

    def value(self) -> str:
        """Something to type: mostly pseudo-words, alone or several."""
        kind = self.rng.random()
        if kind < 0.35:
            return self.word()
        if kind < 0.55:
            return " ".join(self.word() for _ in range(2 + self.below(3)))
        makers = (
            self.name,
            self.email,
            self.phone,
            self.date,
            self.time,
            self.code,
            lambda: self.digits(1 + self.below(5)),
        )
        return makers[self.below(len(makers))]()

    def title(self) -> str:
        """A name of two to four capitalised words."""
        return " ".join(self.word().capitalize() for _ in range(2 + self.below(3)))

    def similar(self, n: int) -> list[str]:
        """`n` different names that share words: alone, with a common beginning or with a common end."""
        kind, shared, found = self.below(3), self.title(), list[str]()
        while len(found) < n:
            own = self.word().capitalize()
            name = (own, f"{shared} {own}", f"{own} {shared}")[kind]
            if name not in found:
                found.append(name)
        return found


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th and so on, up to 20th."""
    return f"{n}{('st', 'nd', 'rd')[n - 1] if n < 4 else 'th'}"


def reserved(word: str) -> bool:
    """Whether a pseudo-word is kept for the gates: one in ten, by a fixed hash."""
    return fixed_hash("reserved", word.lower()) % 10 == 0
