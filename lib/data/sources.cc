#include "data/sources.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/normal.h"
#include "data/digits.h"
#include "data/idx.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

// An array of the dataset and what the config says where it is.
struct Wanted {
  std::string array;  // name in the dataset: "x", or of the model's input
  std::string text;   // path, or name in the archive
  SourceLoc loc;
  bool is_default = false;
};

// x and y may be a text, a list of texts, or a dict by input or output name.
std::vector<Wanted> wanted_arrays(const ConfigObject& source, const std::string& arg) {
  if (source.args.count(arg) == 0 || source.arg(arg).is_null()) {
    return {};
  }
  const ConfigValue& value = source.arg(arg);
  std::vector<Wanted> wanted;
  if (value.is_list()) {
    for (const ConfigValue& entry : value.list()) {
      wanted.push_back({entry.string(), entry.string(), entry.loc});
    }
  } else if (value.is_dict()) {
    for (const auto& [name, entry] : value.dict()) {
      wanted.push_back({name, entry.string(), entry.loc});
    }
  } else {
    wanted.push_back({arg, value.string(), value.loc, value.is_default});
  }
  return wanted;
}

std::string resolve(const std::string& base_dir, const std::string& path) {
  return base_dir.empty() || path.starts_with('/') ? path : base_dir + "/" + path;
}

// Collects the problems of several files, so that all are shown together.
class Reads {
 public:
  // The result of `read`, or an empty tensor and a problem at `loc`.
  template <class F>
  HostTensor array(const SourceLoc& loc, F&& read) {
    HostTensor tensor;
    run(loc, [&] {
      tensor = read();
      if (tensor.shape().empty()) {
        throw ConfigError("E304", loc, "a single number has no dimension of samples");
      }
    });
    return tensor;
  }

  template <class F>
  void run(const SourceLoc& loc, F&& function) {
    try {
      function();
    } catch (const ConfigError& error) {
      for (Diagnostic problem : error.diagnostics().list()) {
        problem.loc = problem.loc ? problem.loc : loc;
        Diagnostic& added = findings_.error(problem.code, problem.loc, problem.message);
        added.label = problem.label;
        added.notes = problem.notes;
      }
    } catch (const FileError& error) {
      findings_.error("E300", loc, error.what());
    }
  }

  void finish() const { findings_.throw_if_errors(); }

 private:
  Diagnostics findings_;
};

// An array of weights as the trainer takes them.
HostTensor weights(HostTensor tensor) {
  return tensor.dtype() == DType::kFloat32 ? std::move(tensor) : tensor.cast(DType::kFloat32);
}

Dataset read_npz_source(const ConfigObject& source, const std::string& base_dir) {
  const std::string& path = source.string("path");
  Dataset dataset;
  dataset.description = fmt::format("npz {}", path);
  Reads reads;
  std::optional<NpzReader> reader;
  reads.run(source.loc_of("path"), [&] { reader.emplace(resolve(base_dir, path)); });
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.array(wanted.loc, [&] { return reader->read(wanted.text); });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || reader->has(wanted.text)) {
      dataset.targets.push_back({wanted.array, read(wanted)});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = weights(read(wanted));
  }
  reads.finish();
  return dataset;
}

Dataset read_npy_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  Reads reads;
  const auto read = [&](const Wanted& wanted) {
    return reads.array(wanted.loc, [&] { return read_npy(resolve(base_dir, wanted.text)); });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.description += (dataset.inputs.empty() ? "npy " : ", ") + wanted.text;
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    dataset.targets.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = weights(read(wanted));
  }
  reads.finish();
  return dataset;
}

Dataset read_idx_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  dataset.description = fmt::format("idx {}", source.string("images"));
  Reads reads;
  HostTensor images = reads.array(source.loc_of("images"), [&] {
    HostTensor tensor = read_idx(resolve(base_dir, source.string("images")));
    const Shape shape = tensor.shape();
    if (shape.size() == 1) {
      throw ConfigError("E307", {},
                        fmt::format("`{}` holds {} numbers, no images; are `images` and `labels` "
                                    "exchanged?",
                                    source.string("images"), shape[0]));
    }
    if (shape.size() == 3) {  // Keras' images have their channels last
      tensor.reshape({shape[0], shape[1], shape[2], 1});
    }
    return tensor;
  });
  dataset.inputs.push_back({"x", std::move(images)});
  if (source.has("labels")) {
    HostTensor labels = reads.array(source.loc_of("labels"), [&] {
      HostTensor tensor = read_idx(resolve(base_dir, source.string("labels")));
      if (tensor.shape().size() > 2) {
        throw ConfigError(
            "E307", {},
            fmt::format("`{}` holds an array {}, no labels; are `images` and `labels` exchanged?",
                        source.string("labels"), shape_string(tensor.shape())));
      }
      return tensor;
    });
    dataset.targets.push_back({"y", std::move(labels)});
  }
  reads.finish();
  return dataset;
}

uint32_t stream(std::string_view name) {
  return static_cast<uint32_t>(hash_text(name));
}

// Standard normal numbers (samples, *sample_shape); number i depends only on seed, name and i, so
// that more samples begin with the same ones.
HostTensor normal_array(int64_t samples, const Shape& sample_shape, int64_t seed,
                        std::string_view name, const SourceLoc& loc) {
  Shape shape = {samples};
  shape.insert(shape.end(), sample_shape.begin(), sample_shape.end());
  int64_t elements = sizeof(float);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
      throw ConfigError("E304", loc, fmt::format("the shape {} is too large", shape_string(shape)));
    }
  }
  HostTensor tensor(DType::kFloat32, shape);
  constexpr int64_t kBlock = 4096;
  std::vector<double> block(kBlock);
  for (int64_t begin = 0; begin < tensor.size(); begin += kBlock) {
    const auto count = static_cast<size_t>(std::min(kBlock, tensor.size() - begin));
    fill_normal(static_cast<uint64_t>(seed), stream(name), 0, static_cast<uint64_t>(begin),
                std::span(block).first(count));
    std::copy_n(block.begin(), count, tensor.data<float>() + begin);
  }
  return tensor;
}

Dataset make_random(const ConfigObject& source) {
  const int64_t samples = source.integer("samples");
  const int64_t seed = source.integer("seed");
  Dataset dataset;
  dataset.description = fmt::format("random, seed {}", seed);
  dataset.inputs.push_back({"x", normal_array(samples, source.arg("shape").integers(), seed,
                                              "data/random/x", source.loc_of("shape"))});
  if (source.has("labels") && source.has("classes")) {
    throw ConfigError("E113", source.loc_of("classes"),
                      "`labels` and `classes` exclude each other: normal numbers of a shape, or "
                      "whole numbers below `classes`");
  }
  if (source.has("labels")) {
    dataset.targets.push_back({"y", normal_array(samples, source.arg("labels").integers(), seed,
                                                 "data/random/y", source.loc_of("labels"))});
  } else if (source.has("classes")) {
    const auto classes = static_cast<uint64_t>(source.integer("classes"));
    HostTensor labels(DType::kInt32, {samples});
    for (int64_t i = 0; i < samples; ++i) {
      const uint64_t bits = philox_bits(static_cast<uint64_t>(seed), stream("data/random/classes"),
                                        0, static_cast<uint64_t>(i));
      labels.data<int32_t>()[i] = static_cast<int32_t>(bits * classes >> 32);
    }
    dataset.targets.push_back({"y", std::move(labels)});
  }
  return dataset;
}

Dataset read_digits(const ConfigObject& source) {
  const std::string& split = source.string("split");
  const int64_t samples = source.has("samples") ? source.integer("samples")
                          : split == "test"     ? 2000
                                                : 10000;
  // The parts are drawn from seeds of their own, so that they share no sample.
  const uint64_t seed = hash_text(fmt::format("digits/{}/{}", split, source.integer("seed")));
  DigitImages digits = make_digits(samples, seed);
  Dataset dataset;
  dataset.description = "digits";
  dataset.inputs.push_back({"x", std::move(digits.images)});
  dataset.targets.push_back({"y", std::move(digits.labels)});
  return dataset;
}

}  // namespace

Dataset read_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset = [&] {
    if (source.class_name == "npz") {
      return read_npz_source(source, base_dir);
    }
    if (source.class_name == "npy") {
      return read_npy_source(source, base_dir);
    }
    if (source.class_name == "idx") {
      return read_idx_source(source, base_dir);
    }
    if (source.class_name == "random") {
      return make_random(source);
    }
    MESHTRAIN_CHECK(source.class_name == "digits", "no data source {}", source.class_name);
    return read_digits(source);
  }();
  dataset.loc = source.loc;
  return dataset;
}

}  // namespace meshtrain
