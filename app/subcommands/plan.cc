// meshtrain plan: what lies where and which collective moves what, without a step or a device.
#include "engine/make_plan.h"
#include "engine/rank_plans.h"
#include "run_flags.h"

namespace meshtrain {
namespace {

struct PlanOptions {
  ConfigWords config;
  int64_t hosts = 0;  // 0: as the hardware has them
  std::string dump_ir, format = "text";
};

// Every mesh, with the rules of the config.
int show_ranking(const PlanOptions& options) {
  LoadOptions load = options.config.load(false);
  for (size_t i = 0; i < load.flags.size(); ++i) {
    if (load.flag_names[i] == "--mesh") {
      load.flags.erase(load.flags.begin() + static_cast<long>(i));
      load.flag_names.erase(load.flag_names.begin() + static_cast<long>(i));
    }
  }
  const PlanRanking ranking = rank_meshes(load, options.hosts, show_meshes());
  out_stream().write(options.format == "json" ? ranking_json(ranking) : ranking_text(ranking));
  return 0;
}

int run_plan(const PlanOptions& options, Invocation&) {
  if (options.config.value_of("--mesh") == "all") {
    return show_ranking(options);
  }
  const PlanSummary plan =
      plan_config(load_config(options.config.load(false)), options.hosts, options.dump_ir);
  const bool json = options.format == "json";
  out_stream().write(json ? plan_json(plan) : plan_text(plan));
  if (json) {
    show_warnings(plan.warnings);  // the text has them
  }
  return 0;
}

}  // namespace

void add_plan(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<PlanOptions>("plan",
                          "Show layouts, memory, collectives and estimated step time without data "
                          "or devices; --devices 64xH100 plans for another cluster",
                          run_plan);
  options.config.add_to(app);
  options.config.add_key_flag(
      app, "--hardware", "FILE", "plan.hardware",
      "Devices to estimate for, besides A100, H100, H200, B200, V100, T4, A10G, L4, L40S, RTX4090 "
      "and cpu, or other values of theirs");
  app.add_option("--hosts", options.hosts,
                 "Hosts that the devices are in; default as the hardware has")
      ->type_name("N")
      ->check(whole_number(1, 65536));
  add_dump_ir_flag(app, options.dump_ir);
  add_format_flag(app, options.format);
  add_color_flag(app);
  app.footer(
      "--mesh all ranks every mesh of the config's axes and every ZeRO level by predicted time.");
}

}  // namespace meshtrain
