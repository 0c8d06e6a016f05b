// meshtrain suggest: a mesh and layout rules to paste into a config.
#include "config/scalars.h"
#include "engine/plan_search.h"
#include "run_flags.h"

namespace meshtrain {
namespace {

struct SuggestOptions {
  ConfigWords config;
  int64_t hosts = 0;
  std::string format = "text";
};

int run_suggest(const SuggestOptions& options, Invocation&) {
  const LoadOptions load = options.config.load(false);
  const Config config = load_config(load);
  std::optional<std::vector<int64_t>> shape;
  if (!options.config.value_of("--mesh").empty()) {
    shape = config.distribution.mesh.shape.value;
    if (shape->size() != 2) {
      refuse("E140", "--mesh of `suggest` has a batch axis and a model axis",
             "--mesh 4x2, or no --mesh for all");
    }
  }
  const std::string devices = PlanSearch(config, options.hosts).devices_text();
  const std::vector<SuggestedLayout> layouts =
      suggest_layouts(load, shape, options.hosts, show_meshes());
  out_stream().write(options.format == "json" ? suggestions_json(layouts, devices)
                                              : suggestions_text(layouts, devices));
  return layouts.front().score.problem.empty() ? 0 : static_cast<int>(ExitCode::kMesh);
}

}  // namespace

void add_suggest(Subcommands& to) {
  auto [app, options, subcommand] = to.add<SuggestOptions>(
      "suggest", "Suggest a mesh and layout rules to paste, with the saving of each rule",
      run_suggest);
  options.config.add_to(app, Steps::kNone);
  app.add_option("--hosts", options.hosts,
                 "Hosts that the devices are in; default as the hardware has")
      ->type_name("N")
      ->check(whole_number(1, 65536));
  add_format_flag(app, options.format);
  add_color_flag(app);
  app.footer(
      "As `meshtrain suggest mlp.yaml --devices 8xH100`. Layout rules of the config are left out;\n"
      "for its own rules on every mesh: `meshtrain plan --mesh all`.");
}

}  // namespace meshtrain
