// Repeat: written among layers, gone once blocks are expanded (expand.h).
#include "config/catalogue_layer_args.h"

namespace meshtrain {

constexpr int kMaxRepeats = 10000;

ClassSpec repeat_class() {
  Spec with =
      make_spec("with", ValueKind::kMap, "", "names and values for its layers or its block");
  with.element = ValueKind::kAny;
  return make_class(
      "Repeat", "its layers, or a block, several times one after the other",
      {integer("times", "", "how often").required().least(0).most(kMaxRepeats),
       text(
           "name", "null",
           "name of each repetition, such as block_{i}; {i} counts from `start`, {i:a} in letters"),
       integer("start", "0", "the counter of the first repetition").least(0).most(kMaxRepeats),
       text("as", "i", "name of the counter; a Repeat within another takes one of its own"),
       text("block", "null", "the block of `blocks`, or the class of layers, to repeat"),
       object("layers", ValueKind::kObjectList, Category::kLayer, "null", "the layers to repeat"),
       with,
       make_spec("inputs", ValueKind::kNames, "null",
                 "what the first repetition takes; null = the entry before it"),
       make_spec("outputs", ValueKind::kNames, "null",
                 "layers that the next repetition takes; null = the last"),
       boolean("trainable", "true", "whether fit changes its weights"),
       make_spec("remat", ValueKind::kNames, "null",
                 "what each repetition keeps for the backward pass: none (as without it), block "
                 "(its inputs), dots (also products), or the names of layers")});
}

}  // namespace meshtrain
