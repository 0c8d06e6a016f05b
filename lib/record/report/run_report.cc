#include "record/report/run_report.h"

#include <fmt/format.h>

#include "base/file.h"
#include "config/run_files.h"
#include "record/report/html.h"
#include "record/report/sections.h"

namespace meshtrain {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5c6675;
  --line: #dfe3e8; --s0: #2563c9; --s1: #d9730d; --s2: #2a9d64; --s3: #a33fb5; --s4: #c9304f;
  --s5: #5f7182; --good: #1f8a55; --bad: #c2303a; --wait: #a86a00; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1a2029; --ink: #e4e8ee;
  --soft: #97a2b1; --line: #2e3743; --s0: #6ea2ff; --s1: #ffa24c; --s2: #5fd39a; --s3: #d98bea;
  --s4: #ff7d92; --s5: #a0b0c0; --good: #5fd39a; --bad: #ff7d87; --wait: #ffbf5e; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 28px 20px 60px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
main { max-width: 1320px; margin: 0 auto; }
h1 { margin: 0; font-size: 27px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 12px; font-size: 17px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; margin-top: 18px; }
.top { display: flex; flex-wrap: wrap; gap: 10px 16px; align-items: center; }
.under { color: var(--soft); margin: 4px 0 0; overflow-wrap: anywhere; }
.badge { border-radius: 99px; padding: 2px 12px; font-size: 13px; font-weight: 600;
  border: 1.5px solid currentColor; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px;
  margin-top: 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 14px; }
.tile b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
  gap: 20px; }
.charts.one { max-width: 640px; margin-top: 16px; }
figure { margin: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 14px; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); }
.tick { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.series-0 { --c: var(--s0); } .series-1 { --c: var(--s1); } .series-2 { --c: var(--s2); }
.series-3 { --c: var(--s3); } .series-4 { --c: var(--s4); } .series-5 { --c: var(--s5); }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
.dash-1 .line { stroke-dasharray: 7 3; } .dash-2 .line { stroke-dasharray: 2 3; }
.dash-3 .line { stroke-dasharray: 9 3 2 3; }
.dash-1 i { opacity: 0.75; } .dash-2 i { opacity: 0.5; } .dash-3 i { opacity: 0.3; }
.mark { fill: var(--c); }
.key { color: var(--soft); }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 5px;
  background: var(--c); }
.joint line { stroke: var(--wait); stroke-dasharray: 4 3; stroke-width: 1.4; }
.block { fill: var(--c); stroke: var(--card); } .odd { opacity: 0.62; }
.save { fill: var(--good); }
.lane { fill: var(--line); }
.label { fill: var(--ink); font-size: 12px; }
.wide { overflow-x: auto; max-height: 520px; overflow-y: auto; }
.wide svg { min-width: 860px; }
@media (max-width: 640px) { .charts .tick { font-size: 17px; } }
table { border-collapse: collapse; width: 100%; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: var(--card); }
th { vertical-align: bottom; }
.names td:first-child { overflow-wrap: anywhere; min-width: 9em; }
.n { text-align: right; white-space: nowrap; }
th.n { white-space: normal; }
code, pre { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; }
pre { margin: 10px 0 0; overflow-x: auto; max-height: 620px; }
details + details { margin-top: 12px; }
summary { cursor: pointer; font-weight: 600; }
.devices { border-collapse: separate; border-spacing: 5px; width: auto; margin: 4px 0 10px; }
.devices td, .devices th { border: 0; padding: 8px 6px; text-align: center; min-width: 46px;
  border-radius: 7px; position: static; background: none; }
.devices td { border: 1px solid var(--line); }
.bar { display: flex; height: 26px; border-radius: 7px; overflow: hidden; margin: 4px 0 12px;
  background: var(--line); }
.bar i { background: var(--c); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 14px; }
.share { display: block; padding: 0 6px; border-radius: 4px;
  background: color-mix(in srgb, var(--s0) var(--share), transparent); }
.note { color: var(--soft); font-size: 13.5px; margin: 10px 0 0; }
ul { margin: 0; padding-left: 20px; }
)css";

}  // namespace

std::string page_html(const std::string& title, const std::string& content) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
      "<meta name=\"generator\" "
      "content=\"meshtrain\"/><title>{}</title>\n<style>{}</style></head>\n"
      "<body><main>\n{}</main></body></html>\n",
      html_text(title), kStyle, content);
}

std::string report_html(const RunRecord& record) {
  std::string out;
  for (const auto part :
       {header_section, curves_section, timeline_section, mesh_section, memory_section,
        layout_section, traffic_section, profile_section, evaluation_section, epochs_section,
        changes_section, warnings_section, config_section}) {
    out += part(record);
  }
  return page_html(record.name.empty() ? record.folder : record.name, out);
}

void write_report(const std::string& folder) {
  write_file_atomic(folder + "/" + run_files::kReport, report_html(read_run_record(folder)));
}

}  // namespace meshtrain
