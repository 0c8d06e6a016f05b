#!/usr/bin/env python3
"""Writes tales.txt beside this file: 60,000 characters of made-up tales for configs/char_mlp.yaml.

Sentences of a small grammar whose choices are SplitMix64's (tests/reference/splitmix.py), so that
the file is the same wherever it is made. Nobody wrote them, and nobody owns them.

  python3 datasets/tales.py
"""
import pathlib

CHARACTERS = 60000
MASK = 2**64 - 1

GRAMMAR = {
    "tale": ["{opening} {told}{told}{told}{told}{ending}\n\n"],
    "opening": ["Once there was {a} who lived {place}.", "Long ago, {place}, {a} kept {thing}.",
                "In the year of the {weather}, {a} came home."],
    "told": ["{He} {went} {place} and {found} {thing}. ", "\"{say},\" said {the}, \"{say}.\"\n",
             "{The} {went} on, for the {weather} was near. ", "But {the} {found} only {thing}. ",
             "\"Who {found} my {bare}?\" asked {the}.\n", "{When} the {weather} came, {he} {went} {place}. "],
    "ending": ["And that was all.", "So {the} {found} {thing} after all.", "They never spoke of the {bare} again."],
    "a": ["a {who}", "an old {who}", "a {mood} {who}", "the {mood} {who}"],
    "the": ["the {who}", "the {who}", "the old {who}", "the {mood} {who}"],
    "The": ["The {who}", "The {mood} {who}", "The old {who}"],
    "who": ["miller", "fox", "ferryman", "widow", "smith", "queen", "heron", "tailor", "goatherd", "judge"],
    "mood": ["quiet", "hungry", "young", "proud", "kind", "patient", "weary"],
    "He": ["He", "She", "They"],
    "he": ["he", "she", "they", "{the}"],
    "went": ["walked", "ran", "rode", "climbed", "crept", "hurried"],
    "found": ["found", "lost", "hid", "sold", "stole", "gave away", "broke"],
    "thing": ["a {bare}", "the {bare}", "three {bare}s", "a {mood} {who}'s {bare}"],
    "bare": ["lantern", "loaf", "silver ring", "blue door", "kettle", "map", "red boat", "fiddle", "key"],
    "place": ["by the river", "over the hill", "under the bridge", "beyond the mill", "at the quay",
              "in a town of {weather}", "near the old wall"],
    "weather": ["rain", "frost", "fog", "long wind", "harvest", "first snow"],
    "When": ["When", "Before", "After"],
    "say": ["I have no {bare}", "the {weather} will pass", "come {place}", "give me {thing}",
            "you are {a}", "nobody {went} here", "{thing} is enough"],
}


class Choices:
    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 33) % count


def expand(rule, choices):
    text = GRAMMAR[rule][choices.below(len(GRAMMAR[rule]))]
    while "{" in text:
        begin = text.index("{")
        end = text.index("}")
        text = text[:begin] + expand(text[begin + 1:end], choices) + text[end + 1:]
    return text


def main():
    choices = Choices(1)
    text = ""
    while len(text) < CHARACTERS:
        text += expand("tale", choices)
    path = pathlib.Path(__file__).parent / "tales.txt"
    path.write_text(text[:CHARACTERS], encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
