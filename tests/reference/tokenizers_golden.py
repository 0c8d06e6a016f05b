#!/usr/bin/env python3
"""Tokenizers and what PyPI's `tokenizers` makes of hard texts with them: tests/golden/tokenizers.

usage: tokenizers_golden.py TEXT    (trains on the first 200,000 characters of TEXT, UTF-8)
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

OUT = pathlib.Path(__file__).parents[1] / "golden" / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", "\t \t", " \n \n x", "a", " a", "a ", "  a  b  ", "a\u00a0b\u2003c\u3000d",
    "x\u180ey \u200b z\u2028w\u0085v", "Good day, world!", "I'm you're he'll they'd we've it's don't",
    "I'M YOU'RE 'S 'Ll \u017f'\u017f", "First Citizen:\nBefore we proceed any further, hear me speak.\n\n",
    "0", "12", "1234567890", "3.14159 -2e10 0x1F \u0663\u0664\u0665 \u00bd \u2167 \u00b2", "a1b22c333", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\u2764\ufe0f",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd", "e\u0301\u0327 \u00e9 \ufb01 \u1e9e", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "for (int i = 0; i < n; ++i) {\n\treturn a[i] /= 2; // x\n}\n", "<html>&amp;</html>", "a" * 3000,
    "the " * 200, "ab" * 700 + " " * 300 + "!" * 300, "\u00e9" * 500, "\x00\x01\x1f\x7f\u0080\u00ff",
    "[CLS] the king [SEP]", "r\u00e9sum\u00e9 \u0130stanbul Stra\u00dfe \u01c5 \u212b na\u00efve", "isn't 'tis do not ,so .", "a\u00adb\u0378c",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> <|endoftext|>", "<|endoftext|", "x <mask>  y",
    "a<b> <b>c <bb>", "\r\n\r\nx\r\n", "\ufeffbom \ufffd \U0010ffff", "can't\u2019t \u201cquoted\u201d \u2014 dash\u2026",
]
# For patterns one after another: DeepSeek V3's three, and those of DeepSeek LLM, whose `$` is the end of a line.
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
LINES = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
LINE_TEXTS = ["a \t ", "a  \n\nb \n", " \r\n  c\t\n\n\n", "1 2  \n3 ", "12\u4f6034\u597d.x5y", "x1  2\n 3!?4 \U0001f6005"]

FORM_TEXTS = [
    "", "  ", "\u00e9 e\u0301 \u00c5 \u212b \ufb01 \u2460 \u00bd \u33a7", "\ud55c\uae00 \u1100\u1161\u11a8\u11a9", "\u0130stanbul \u01c4 \u01c5 \u03a3\u0391\u03a3 STRASSE \u1e9e",
    "\u0301a", " a\u0327\u0301\u0316b ", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0929", "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f", "\uff28\uff41 \uff76\uff9e \u4e16\u754c \uf900",
    "\u3000x\u00a0\u2003", "\U0001f468\u200d\U0001f469 \u2764\ufe0f", "a<\u00c9>b <\u00e9> <E\u0301> [X]", "\u1e9b\u0323 \u0344 \u0958", "a\u00adb\x00c\x7f\u0378", "\u00e9" * 4 + " " + "x\u0301" * 4,
]


def random_texts(count):
    rng = random.Random(1)
    alphabet = list(" \n\t'sStTab01,.") + ["\u00e9", "\u4e16", "\U0001f600", "\u00a0", "the", " I", "'ll", "  ", "<b>", "\u0301"]
    return ["".join(rng.choices(alphabet, k=rng.randrange(40))) for _ in range(count)]


def trained(text, vocabulary, pattern=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = byte_level if pattern is None else pre_tokenizers.Sequence(
        [isolated(pattern), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"]))
    return tokenizer


def llama2_like(text):
    """Characters, `<0x0A>` for bytes of others, and no words: spaces become U+2581."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator([text.replace(" ", "\u2581").replace("\n", "")], trainers.BpeTrainer(
        vocab_size=550, show_progress=False, max_token_length=8,
        special_tokens=special + [f"<0x{i:02X}>" for i in range(256)]))
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def bert(text, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator([text], trainers.WordPieceTrainer(
        vocab_size=500, show_progress=False, initial_alphabet=list("\u4e16\u754c\u043c\u0438\u0440\u00e9\u0130"),
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return tokenizer


def without_byte_tokens_added(tokenizer):
    """The bytes are tokens of the vocabulary, as in Llama 2, not added ones."""
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def split(tokenizer, *splits):
    """The same tokens of words that several pre-tokenizers make, one after another."""
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    return tokenizer


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def cases(tokenizer, texts):
    out = []
    for text in texts + random_texts(60):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        out.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return out


def metaspace(tokenizer):
    """The tokens of llama2 with Metaspace in place of its normalizer, as newer files have it."""
    out = []
    texts = ["Once upon  a time", " leading", "a<s>b c<s> d", "\u2581x y", "", "  ", "x"]
    for scheme, splits in (("first", False), ("first", True), ("always", True), ("never", True)):
        data = json.loads(tokenizer.to_str())
        data["normalizer"] = None
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": splits}
        data["decoder"]["decoders"] = [{"type": "ByteFallback"}, data["pre_tokenizer"]]
        changed = {key: data[key] for key in ("normalizer", "pre_tokenizer", "decoder")}
        out.append({**changed, "cases": cases(Tokenizer.from_str(json.dumps(data)), texts)})
    return out


def changed(tokenizer, texts, **parts):
    """`parts` of a tokenizer.json in place of the tokenizer's own, and what comes of them."""
    data = {**json.loads(tokenizer.to_str()), **parts}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    return {**parts, "cases": [{"text": text, "ids": tokenizer.encode(text).ids, "decoded": tokenizer.decode(
        tokenizer.encode(text).ids, skip_special_tokens=False)} for text in texts]}


def forms(tokenizer):
    """The tokens of llama2, which have all bytes, with each normalizer, and an added token that it changes."""
    def sequence(*names):
        return {"type": "Sequence", "normalizers": [{"type": n} if isinstance(n, str) else n for n in names]}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "_"}
    bert_like = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    normalizers_ = [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")] + [
        strip, {**strip, "strip_right": False}, bert_like, sequence("NFKD", "StripAccents", "Lowercase", strip),
        sequence(strip, {"type": "Prepend", "prepend": "_"}, space, sequence("NFC", "Lowercase"))]
    data = json.loads(tokenizer.to_str())
    added = data["added_tokens"] + [
        {"id": tokenizer.get_vocab_size() + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": i == 0, "special": i == 1} for i, content in enumerate(("<\u00c9>", "[X]"))]
    return [changed(tokenizer, FORM_TEXTS, normalizer=n, added_tokens=added) for n in normalizers_]


WORD_TEXTS = ["", "  ", "a_b-c d\u0301e \u200d\u2167\u24b6 x\u00b2", "Hi, you!! 12 3\u0664\u00bd", "\tA\u3000b\u180ec\n\nd",
              "$3.50+<b> `^|~ \u201cq\u201d\u2014", "\u0939\u093f\u0928\u094d\u0926\u0940 \u4e16\u754c", "[CLS] the,king [SEP]"]


def word_splits(tokenizer):
    """Pre-tokenizers that leave texts out or read Oniguruma's own classes."""
    def split(regex, behavior="Removed", invert=False):
        return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}
    whitespace, punctuation = {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}
    digits = {"type": "Digits", "individual_digits": True}
    splits = [[{"type": "Whitespace"}], [whitespace], [punctuation], [whitespace, punctuation, digits],
              [split(r"[\s,-]+")], [split(r"\p{L}+|\d", invert=True)], [split(r"\w+", "Isolated")],
              [split(r"[\w-]+", "Isolated", True)], [split(r"\b[^\s]")], [split(r"[[:punct:][:digit:]\s]|[]b]")],
              [split(r"\W"), split(r"\Bi\B")]]
    return [changed(tokenizer, WORD_TEXTS, normalizer=None, pre_tokenizer={"type": "Sequence", "pretokenizers": s}) for s in splits]


def bert_choices(tokenizer):
    """What the choices of a tokenizer_config.json beside vocab.txt make of texts."""
    special = json.loads(tokenizer.to_str())["added_tokens"]
    own = {"lstrip": False, "rstrip": False, "single_word": False}
    more = {"4": {"content": "[MASK]", **own, "lstrip": True, "normalized": False, "special": True},
            "500": {"content": "NewTok", **own, "normalized": True, "special": False}}
    with_more = [t for t in special if t["id"] != 4] + [{"id": int(i), **t} for i, t in more.items()]
    texts = FORM_TEXTS + ["a NewTok newtok  [MASK] b", "The \u00c9t\u00e9 \u4e16\u754c\u4e16, isn't"]
    out = []
    for config in ({}, {"strip_accents": False}, {"do_lower_case": False, "strip_accents": True},
                   {"tokenize_chinese_chars": False, "unk_token": {"content": "[UNK]"}}, {"added_tokens_decoder": more}):
        lowercase = config.get("do_lower_case", True)
        normalizer = {"type": "BertNormalizer", "clean_text": True, "lowercase": lowercase,
                      "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
                      "strip_accents": config.get("strip_accents")}
        added = with_more if "added_tokens_decoder" in config else special
        result = changed(tokenizer, texts, normalizer=normalizer, added_tokens=added)
        out.append({"config": config, "cases": result["cases"]})
    return out


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")[:200000]
    OUT.mkdir(exist_ok=True)
    gpt2 = trained(text, 600)
    llama3 = trained(text, 500, LLAMA3, ignore_merges=True)
    llama3.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False),
                       AddedToken("<b>"), AddedToken("<bb>", normalized=False)])
    roberta = trained(text, 400)
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    digits, bytes_only = pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False, use_regex=False)
    smollm = split(trained(text, 500), digits, pre_tokenizers.ByteLevel(False))
    deepseek = split(trained(text, 500), *map(isolated, DEEPSEEK), bytes_only)
    lines = split(trained(text, 500), *map(isolated, LINES), digits, bytes_only)
    tokenizers = {"smollm": smollm, "deepseek": deepseek, "deepseek_lines": lines, "gpt2": gpt2,
                  "llama3": llama3, "llama2": without_byte_tokens_added(llama2_like(text)),
                  "roberta": roberta, "bert": bert(text, True), "bert_cased": bert(text, False)}
    for name, tokenizer in tokenizers.items():
        (OUT / name).mkdir(exist_ok=True)
        data = json.loads(tokenizer.to_str())
        texts = TEXTS + LINE_TEXTS if tokenizer in (smollm, deepseek, lines) else TEXTS
        (OUT / name / "cases.json").write_text(json.dumps(cases(tokenizer, texts)) + "\n")
        (OUT / name / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False) + "\n")
    (OUT / "metaspace.json").write_text(json.dumps(metaspace(tokenizers["llama2"])) + "\n")
    for name, result in (("forms", forms(tokenizers["llama2"])),
                         ("bert_choices", bert_choices(tokenizers["bert_cased"])),
                         ("word_splits_wordpiece", word_splits(tokenizers["bert_cased"])),
                         ("word_splits", word_splits(tokenizers["llama2"])),
                         ("no_decoder", [changed(tokenizers["bert"], ["The king of it", ""], decoder=None)])):
        (OUT / f"{name}.json").write_text(json.dumps(result) + "\n")
    folder = OUT / "gpt2_files"
    folder.mkdir(exist_ok=True)
    gpt2.model.save(str(folder))
    folder = OUT / "bert_files"
    folder.mkdir(exist_ok=True)
    tokenizers["bert_cased"].model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}) + "\n")


if __name__ == "__main__":
    main()
