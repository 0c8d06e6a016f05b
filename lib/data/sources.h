// The data sources: each reads or makes the arrays that its config names.
#pragma once

#include <string>

#include "config/source_classes.h"
#include "data/dataset.h"

namespace meshtrain {

// All samples of a source, of one of its splits or of parts of them (config/split.h), before slice,
// transforms and checks across arrays; every array has at least one dimension. Problems of all its
// files are thrown together, each with its place in the config. `known` as for load_dataset().
Dataset read_source(const ConfigObject& source, const std::string& base_dir,
                    const LearnedPtr& known = nullptr, const ReadLimits& limits = {});

// What a reader has beside the arguments.
struct SourceContext {
  const ConfigObject& source;
  const std::string& base_dir;  // relative paths begin here
  const LearnedData* known;     // of the training data, for sources that learn; null: learn it
  ReadLimits limits;
};

// One function for each class of the catalogue. Sources that learn put what they learn into the
// dataset.
Dataset read_npz_source(const ArchiveOptions& source, const SourceContext& context);
Dataset read_hdf5_source(const ArchiveOptions& source, const SourceContext& context);
Dataset read_npy_source(const NpyOptions& source, const SourceContext& context);
Dataset read_idx_source(const IdxOptions& source, const SourceContext& context);
Dataset read_csv_source(const CsvOptions& source, const SourceContext& context);
Dataset read_text_source(const TextOptions& source, const SourceContext& context);
Dataset read_tokens_source(const TokensOptions& source, const SourceContext& context);
Dataset read_lines_source(const LinesOptions& source, const SourceContext& context);
Dataset make_random_source(const RandomOptions& source, const SourceContext& context);
Dataset make_digits_source(const DigitsOptions& source, const SourceContext& context);
Dataset read_image_folder_source(const ImageFolderOptions& source, const SourceContext& context);
Dataset read_text_folder_source(const TextFolderOptions& source, const SourceContext& context);
Dataset read_mnist_source(const SplitOptions& source, const SourceContext& context);
Dataset read_fashion_mnist_source(const SplitOptions& source, const SourceContext& context);
Dataset read_cifar10_source(const SplitOptions& source, const SourceContext& context);
Dataset read_cifar100_source(const Cifar100Options& source, const SourceContext& context);

struct SourceReader {
  const char* class_name;
  Dataset (*read)(const SourceContext& context);
};
template <class S>
S options_of(Dataset (*)(const S&, const SourceContext&));
template <auto read>
Dataset read_with_options(const SourceContext& context) {
  return read(read_options<decltype(options_of(read))>(context.source), context);
}
inline constexpr SourceReader kSourceReaders[] = {
    {"npz", read_with_options<read_npz_source>},
    {"hdf5", read_with_options<read_hdf5_source>},
    {"npy", read_with_options<read_npy_source>},
    {"idx", read_with_options<read_idx_source>},
    {"csv", read_with_options<read_csv_source>},
    {"text", read_with_options<read_text_source>},
    {"tokens", read_with_options<read_tokens_source>},
    {"lines", read_with_options<read_lines_source>},
    {"random", read_with_options<make_random_source>},
    {"digits", read_with_options<make_digits_source>},
    {"image_folder", read_with_options<read_image_folder_source>},
    {"text_folder", read_with_options<read_text_folder_source>},
    {"mnist", read_with_options<read_mnist_source>},
    {"fashion_mnist", read_with_options<read_fashion_mnist_source>},
    {"cifar10", read_with_options<read_cifar10_source>},
    {"cifar100", read_with_options<read_cifar100_source>},
};

}  // namespace meshtrain
