// meshtrain inspect, and verify of a checkpoint: without a model.
#include <fmt/format.h>

#include <filesystem>

#include "base/columns.h"
#include "base/durable_file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/writer.h"
#include "cli.h"
#include "train/resume_target.h"
#include "verify.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// The checkpoint itself, or all of a run, newest first.
std::vector<std::string> checkpoints_of(const std::string& given) {
  std::string path = given;
  std::error_code error;
  if (fs::is_symlink(path, error)) {
    path = fs::canonical(path, error).string();
  }
  std::string folder = is_run_dir(path) ? path + "/checkpoints" : path;
  std::vector<std::string> out;
  for (const int64_t step : checkpoint_steps(folder)) {
    out.push_back(folder + "/" + checkpoint_name(step));
  }
  if (out.empty() && folder != path) {
    throw ConfigError("E400", {}, fmt::format("there is no checkpoint in `{}`", folder));
  }
  return out.empty() ? std::vector<std::string>{path} : out;
}

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
                                      {"config", reader.text("config.resolved.yaml")}};
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
      {"tensor", "kind", "dtype", "shape", "layout", "pieces"}};
  for (const CheckpointTensor& tensor : manifest.tensors) {
    rows.push_back({tensor.path, std::string(tensor_kind_name(tensor.kind)),
                    std::string(dtype_name(tensor.dtype)), shape_string(tensor.shape),
                    tensor.layout, std::to_string(tensor.shards.size())});
  }
  return out + aligned_columns(rows) + "\n" + reader.text("config.resolved.yaml");
}

}  // namespace

int verify_checkpoints(const std::string& folder, const Arguments& arguments) {
  const std::vector<std::string> paths = checkpoints_of(folder);
  Diagnostics problems;
  for (const std::string& path : paths) {
    try {
      const CheckpointReader reader(path);
      reader.verify();
      out_stream().write(fmt::format("{}: good, step {}, {} tensors in {} files, {}\n", path,
                                     reader.manifest().step, reader.manifest().tensors.size(),
                                     reader.manifest().files.size() + 1,
                                     format_bytes(reader.num_bytes())));
    } catch (const ConfigError& error) {
      out_stream().write(
          fmt::format("{}: {}\n", path, is_only_not_read(error) ? "not read" : "damaged"));
      problems.append(error.diagnostics());
    }
  }
  if (problems.has_errors()) {
    err_stream().write(problems.render(use_color(arguments.color, err_stream())));
    return static_cast<int>(ExitCode::kCheckpoint);
  }
  return 0;
}

int run_inspect(const Arguments& arguments) {
  const ResumeTarget target = open_resume_path(arguments.target);
  for (const std::string& warning : target.warnings) {
    err_stream().write(fmt::format("warning: {}\n", warning));
  }
  out_stream().write(arguments.format == "json" ? inspect_json(*target.reader)
                                                : inspect_text(*target.reader));
  return 0;
}

}  // namespace meshtrain
