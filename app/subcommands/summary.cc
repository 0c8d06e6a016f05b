// meshtrain summary: Keras' table of layers, or drawings of their shardings.
#include "config_words.h"
#include "engine/model_summary.h"
#include "engine/sharding_drawings.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct SummaryOptions {
  ConfigWords config;
  bool draws = false;    // --sharding was given
  std::string sharding;  // with this name; "": all
};

int run_summary(const SummaryOptions& options, Invocation&) {
  const Config config = load_config(options.config.load(false));
  const Setup setup(config, nullptr);
  out_stream().write(options.draws
                         ? sharding_drawings(setup, options.sharding, out_stream().has_color())
                         : model_summary(setup));
  show_warnings(setup.warnings());
  return 0;
}

}  // namespace

void add_summary(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<SummaryOptions>("summary", "Keras' table of layers, with their layouts", run_summary);
  options.config.add_to(app);
  CLI::Option* sharding =
      app.add_option("--sharding", options.sharding,
                     "Draw which device holds which part of a variable, of LAYER/output or of the "
                     "batch; without a name of all of them. As --sharding=NAME")
          ->option_text("[=NAME]")
          ->expected(0, 1)
          ->allow_extra_args(false)
          ->group("Output");
  app.parse_complete_callback(
      [&options = options, sharding] { options.draws = sharding->count() > 0; });
  add_color_flag(app);
}

}  // namespace meshtrain
