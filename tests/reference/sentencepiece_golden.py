#!/usr/bin/env python3
"""Models of SentencePiece and what PyPI's `sentencepiece` makes of hard texts with them.

usage: sentencepiece_golden.py TEXT    (trains on TEXT, UTF-8; writes tests/golden/tokenizers/sentencepiece_*)
"""
import io
import json
import pathlib
import sys

import sentencepiece

from tokenizers_golden import OUT, TEXTS, random_texts

# As Llama 2's and T5's: bytes for unknown characters and no changes of the text; NFKC and an unknown piece.
KINDS = {
    "sentencepiece_bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=420,
                              remove_extra_whitespaces=False, split_digits=True),
    "sentencepiece_unigram": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", vocab_size=120, pad_id=0,
                                  eos_id=1, unk_id=2, bos_id=-1),
}


def main():
    lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("\n")
    for name, options in KINDS.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        folder = OUT / name
        folder.mkdir(exist_ok=True)
        file = "tokenizer.model" if options["model_type"] == "bpe" else "spiece.model"
        (folder / file).write_bytes(model.getvalue())
        cases = []
        for text in TEXTS + random_texts(100):
            ids = processor.encode(text)
            cases.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
        (folder / "cases.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
