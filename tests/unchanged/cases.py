"""What unchanged_test.py runs: every config of configs/, and small ones in all kinds of settings."""
import dataclasses
import gzip
import random
import struct
import zlib

SHORT = ["fit.epochs=2", "fit.steps_per_epoch=3"]


@dataclasses.dataclass
class Case:
    name: str
    config: str
    overrides: list
    processes: int = 1
    then: list = dataclasses.field(default_factory=list)  # further command lines
    exits: tuple = (0,)

    def steps(self):
        return [["train", self.config, "-o", "run", "--quiet", *self.overrides], *self.then]


def shipped(name, *overrides):
    return Case(f"configs/{name}", f"configs/{name}.yaml", [*SHORT, *overrides])


def small(name, config, *overrides, **more):
    return Case(name, f"tests/unchanged/{config}.yaml", list(overrides), **more)


def mlp(name, *overrides, **more):
    return small(name, "mlp", *overrides, **more)


DIGITS = "{source: digits, samples: 512}"
TEST = "{source: digits, split: test, samples: 256}"
ALONE = "distribution.layout_map={}"
MESH3 = ["distribution.device_mesh.shape=[2,2,2]", "distribution.device_mesh.axis_names=[data,fsdp,model]"]

CASES = [
    shipped("quickstart", f"data.train={DIGITS}", f"data.validation={TEST}", f"data.test={TEST}"),
    shipped("keras_guide_data_parallel"),
    shipped("keras_guide_model_parallel"),
    shipped("mirrored_mlp", f"data.train={DIGITS}", f"data.validation={TEST}"),
    shipped("jax_guide_convnet", f"data.train={DIGITS}", f"data.test={TEST}"),
    shipped("jax_guide_convnet_short", f"data.train={DIGITS}", f"data.test={TEST}"),
    shipped("mnist_convnet", f"data.train={DIGITS}", f"data.test={TEST}"),
    shipped("mixed_convnet", f"data.train={DIGITS}", f"data.test={TEST}"),
    shipped("cifar_resnet"),
    shipped("char_mlp"),
    shipped("tabular"),
    # Meshes and layouts
    mlp("one device", "--mesh", "1x1"),
    mlp("tensor parallel", "--mesh", "1x8"),
    mlp("eight by one", "--mesh", "8x1"),
    mlp("two by four"),
    mlp("data parallel", "distribution.type=DataParallel", ALONE, "--mesh", "4x1"),
    mlp("three axes", *MESH3),
    mlp("zero 1", "distribution.zero=1"),
    mlp("zero 2", "distribution.zero=2", "--mesh", "4x2"),
    mlp("zero 3", "distribution.zero=3", "--mesh", "4x2"),
    mlp("hybrid fsdp", *MESH3, "distribution.batch_dim_name=[data,fsdp]", "distribution.zero=3",
        "distribution.zero_axes=[fsdp]"),
    mlp("a layout of an output", "distribution.layout_map+={narrow/output: [data, model]}"),
    # Types, optimizers, schedules
    mlp("mixed bfloat16", "dtype_policy=mixed_bfloat16"),
    mlp("mixed float16", "dtype_policy=mixed_float16"),
    mlp("float64", "dtype_policy=float64", "--mesh", "2x2"),
    mlp("Lamb with accumulation", "compile.optimizer={Lamb: {learning_rate: 0.01, gradient_accumulation_steps: 3}}"),
    mlp("Muon", "compile.optimizer={Muon: {learning_rate: 0.01}}"),
    mlp("Adafactor and cosine decay",
        "compile.optimizer={Adafactor: {learning_rate: {CosineDecay: {initial_learning_rate: 0.1, decay_steps: 10}}}}",
        "distribution.zero=1"),
    mlp("clipping and averages",
        "compile.optimizer={SGD: {learning_rate: 0.1, clipnorm: 0.5, use_ema: true, weight_decay: 0.01}}"),
    mlp("class weights and splits", "fit.class_weight={0: 2.0, 3: 0.5}", "fit.validation_split=0.2",
        "~data.validation", "fit.validation_freq=2"),
    # Images, tables, texts
    small("images", "images"),
    small("images on one device", "images", "--mesh", "1"),
    small("images in halves", "images", "dtype_policy=mixed_bfloat16", "--mesh", "2"),
    small("a folder of images", "images", "data.train={source: image_folder, directory: folder, image_size: [12, 12]}",
          "~data.test", "~evaluate"),
    small("idx files", "images", "data.train={source: idx, images: images.gz, labels: labels.gz}",
          "data.test={source: idx, images: images.gz, labels: labels.gz, slice: '[:8]'}"),
    small("a table", "rows"),
    small("a text", "letters"),
    small("tokens", "letters",
          "data.train={source: tokens, path: tokens.bin, vocabulary: 64, sequence_length: 8, target: last}"),
    # Callbacks, checkpoints, resuming
    small("callbacks", "callbacks"),
    mlp("many checkpoints", "checkpoint.every=2 steps", "checkpoint.keep=100"),
    mlp("a resumed run", "--limit-steps", "2",
        then=[["resume", "run", "fit.epochs=4", "--quiet"]]),
    mlp("resumed on another mesh", then=[["resume", "run", "fit.epochs=3", "--mesh", "4x1", "--quiet"]]),
    # Processes
    mlp("two processes", processes=2),
    mlp("four processes", "distribution.zero=3", "--mesh", "4x2", processes=4),
    mlp("two processes, tensor parallel", "--mesh", "1x8", processes=2),
    mlp("two processes that gather", "checkpoint.gather=root", processes=2),
    small("images on two processes", "images", processes=2),
    small("a text on four processes", "letters", processes=4),
]


def png(width, height, rgb):
    """An image of 8-bit RGB, not compressed well."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + rgb[y * width * 3:(y + 1) * width * 3] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_data(folder):
    """The files that the small configs read: the same bytes every time."""
    draw = random.Random(5)
    cities = ["Bonn", "Rome", "Oslo"]
    rows = [f"{draw.choice(cities)},{'' if i % 7 == 0 else draw.randint(20, 90)},{draw.randint(1, 5)},"
            f"{draw.uniform(1, 9):.3f}" for i in range(60)]
    (folder / "table.csv").write_text("\n".join(["city,size,rooms,price", *rows]) + "\n")
    words = ["mesh", "layout", "axis", "shard", "batch", "step"]
    (folder / "letters.txt").write_text(" ".join(draw.choice(words) for _ in range(90)) + "\n")
    (folder / "tokens.bin").write_bytes(struct.pack("<400H", *(draw.randrange(64) for _ in range(400))))
    pixels = bytes(draw.randrange(256) for _ in range(40 * 12 * 12 * 3))
    (folder / "images.gz").write_bytes(
        gzip.compress(struct.pack(">HBBIIII", 0, 8, 4, 40, 12, 12, 3) + pixels, mtime=0))
    (folder / "labels.gz").write_bytes(
        gzip.compress(struct.pack(">HBBI", 0, 8, 1, 40) + bytes(i % 4 for i in range(40)), mtime=0))
    for i in range(24):
        path = folder / "folder" / f"class_{i % 4}" / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(14, 13, bytes(draw.randrange(256) for _ in range(14 * 13 * 3))))
