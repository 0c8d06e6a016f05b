# Writes templates.cc from configs/*.yaml: cmake -DFOLDER=configs -DOUTPUT=templates.cc -P ...
file(GLOB files LIST_DIRECTORIES false ${FOLDER}/*.yaml)
list(SORT files)
set(entries "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text HEX)
  # Bytes as octal escapes would be long; hexadecimal ones end at the next pair.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${text}")
  string(REGEX REPLACE "(\\\\x0a)" "\\1\"\n    \"" text "${text}")
  string(APPEND entries "    {\"${name}\",\n    \"${text}\"},\n")
endforeach()
list(LENGTH files count)
file(WRITE ${OUTPUT}.new
"#include \"templates.h\"

#include <array>

namespace meshtrain {

std::span<const Template> templates() {
  static constexpr std::array<Template, ${count}> kTemplates = {{
${entries}  }};
  return kTemplates;
}

}  // namespace meshtrain
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
