// report.html: one page about a run: curves, time line, mesh, layouts, memory, config. It loads no
// other file, and it is well-formed XML.
#pragma once

#include <string>

#include "record/report/record.h"

namespace meshtrain {

std::string report_html(const RunRecord& record);
// A page with the report's style: `title` is text, `content` HTML.
std::string page_html(const std::string& title, const std::string& content);

// Writes `folder`/report.html. Throws as read_run_record, and FileError (exit 74).
void write_report(const std::string& folder);

}  // namespace meshtrain
