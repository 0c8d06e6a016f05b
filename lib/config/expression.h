// Expressions in values, evaluated after all overrides, so that what depends on a value follows it:
//
//   units: =4 * d_model            arithmetic on a block's arguments, `vars`, then full paths
//   dir: ${env:MESHTRAIN_DATA,./data}
//   "${vars.d_model}"              OmegaConf's spelling of a reference
//
// + - * / // % **, comparisons and `a if c else b` as in Python; x[i]; min, max, round, abs, floor,
// sqrt, exp, log, cos, factorizations(n, dims); vocabulary_size and num_classes of the training
// data (data_sizes.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/arithmetic.h"
#include "config/yaml.h"

namespace meshtrain {

// Names that come before those of `vars`: the arguments of a block, the counter of a Repeat.
struct LocalNames {
  std::vector<YamlNode> values;  // evaluated; the name is the node's `key`
  const LocalNames* outer = nullptr;
};

// Evaluates parts of one config, `root`, which outlives this.
class Expressions {
 public:
  // `first_file`: the first config file, whose folder relative paths of data are from. `weights`:
  // as DataSizesReader.
  Expressions(YamlNode& root, Diagnostics& diagnostics, std::string first_file = "",
              std::string weights = "");
  ~Expressions();

  // Replaces every expression within `node` by its result; `node` is a part of `root`, or a copy of
  // one that is to stand for something else, with names of its own. E131: an environment variable
  // that is not set, or whose name says that it holds a secret; E132: what cannot be evaluated,
  // cycles included.
  void evaluate(YamlNode& node, const LocalNames* locals = nullptr);
  // The value of a name. Throws ExprError.
  ExprValue lookup(const std::string& name);

 private:
  class Evaluator;
  std::unique_ptr<Evaluator> evaluator_;
};

// The environment variables that configs of this process have read, sorted.
std::vector<std::string> environment_read();

}  // namespace meshtrain
