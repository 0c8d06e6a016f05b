// The sections of report.html; empty when a run has no data for one.
#pragma once

#include <string>

#include "record/report/record.h"

namespace meshtrain {

std::string header_section(const RunRecord& record);
std::string curves_section(const RunRecord& record);
std::string epochs_section(const RunRecord& record);
std::string timeline_section(const RunRecord& record);
std::string changes_section(const RunRecord& record);  // what resuming changed
std::string mesh_section(const RunRecord& record);
std::string memory_section(const RunRecord& record);
std::string layout_section(const RunRecord& record);
std::string traffic_section(const RunRecord& record);
std::string profile_section(const RunRecord& record);     // with train --profile N
std::string evaluation_section(const RunRecord& record);  // with evaluate --details
std::string warnings_section(const RunRecord& record);
std::string config_section(const RunRecord& record);

// <section><h2>title</h2>content</section>
std::string section(const std::string& title, const std::string& content);
// Rows of HTML cells, the first row being the heads; columns from `first_number` on are numbers.
std::string html_table(const std::vector<std::vector<std::string>>& rows, size_t first_number);

}  // namespace meshtrain
