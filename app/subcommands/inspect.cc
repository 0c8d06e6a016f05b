// meshtrain inspect: what a checkpoint has, without a model.
#include <fmt/format.h>

#include <filesystem>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "config/run_files.h"
#include "output.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct InspectOptions {
  std::string target, format = "text";
};

std::string inspect_json(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  const TrainState& state = reader.state();
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const CheckpointTensor& tensor : manifest.tensors) {
    tensors.push_back({{"path", tensor.path},
                       {"kind", tensor_kind_name(tensor.kind)},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"layout", tensor.layout},
                       {"pieces", tensor.shards.size()}});
  }
  nlohmann::ordered_json mesh = {{"shape", nlohmann::json::array()},
                                 {"axis_names", nlohmann::json::array()}};
  for (const MeshAxis& axis : manifest.mesh) {
    mesh["shape"].push_back(axis.size);
    mesh["axis_names"].push_back(axis.name);
  }
  const nlohmann::ordered_json out = {{"step", manifest.step},
                                      {"epoch", state.position.epoch},
                                      {"batch", state.position.batch},
                                      {"iterations", state.iterations},
                                      {"time", manifest.time},
                                      {"written_by", manifest.written_by},
                                      {"run_id", manifest.run_id},
                                      {"mesh", mesh},
                                      {"model_signature", manifest.model_signature},
                                      {"plan_signature", manifest.plan_signature},
                                      {"bytes", reader.num_bytes()},
                                      {"tensors", tensors},
                                      {"config", reader.text(run_files::kResolved)}};
  return json_text(out, 1) + "\n";
}

std::string inspect_text(const CheckpointReader& reader) {
  const Manifest& manifest = reader.manifest();
  const TrainPosition& at = reader.state().position;
  std::string mesh;
  for (const MeshAxis& axis : manifest.mesh) {
    mesh += fmt::format("{}{}={}", mesh.empty() ? "" : " ", axis.name, axis.size);
  }
  std::string out = fmt::format(
      "checkpoint  {}\nstep        {}: {} epochs and {} batches are done\nsaved       {} by {}\n"
      "mesh        {}\nsize        {}\n\n",
      reader.path(), manifest.step, at.epoch, at.batch, manifest.time, manifest.written_by,
      mesh.empty() ? "1 device" : mesh, format_bytes(reader.num_bytes()));
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "kind", "dtype", "shape", "layout", "shards"}};
  for (const CheckpointTensor& tensor : manifest.tensors) {
    rows.push_back({tensor.path, std::string(tensor_kind_name(tensor.kind)),
                    std::string(dtype_name(tensor.dtype)), shape_string(tensor.shape),
                    tensor.layout, std::to_string(tensor.shards.size())});
  }
  return out + aligned_columns(rows) + "\n" + reader.text(run_files::kResolved);
}

int run_inspect(const InspectOptions& options, Invocation&) {
  for (;;) {
    const ResumeTarget target = open_resume_path(options.target);
    try {
      const std::string text =
          options.format == "json" ? inspect_json(*target.reader) : inspect_text(*target.reader);
      for (const std::string& warning : target.warnings) {
        err_stream().write(fmt::format("warning: {}\n", warning));
      }
      out_stream().write(text);
      return 0;
    } catch (const ConfigError&) {
      // A run in progress deletes its old ones: it has a newer one then.
      if (std::error_code error; std::filesystem::exists(target.reader->path(), error)) {
        throw;
      }
    }
  }
}

}  // namespace

void add_inspect(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<InspectOptions>("inspect", "Tensors, layouts and config of a checkpoint", run_inspect);
  app.add_option("DIR", options.target, "A checkpoint, or a run: then its newest")->required();
  add_format_flag(app, options.format);
}

}  // namespace meshtrain
