# Writes a C++ source with the texts of files, behind a header that declares `span<const TYPE> FUNCTION()` for a TYPE
# of a name and a text: cmake "-DFILES=configs/a.yaml;..." -DROOT=configs -DSUFFIX=.yaml -DHEADER=templates.h
# -DTYPE=Template -DFUNCTION=templates -DOUTPUT=templates.cc [-DNAMESPACE=meshtrain] -P embed_files.cmake
# Names are paths from ROOT without SUFFIX, sorted.
if(NOT NAMESPACE)
  set(NAMESPACE meshtrain)
endif()
list(SORT FILES)
set(entries "")
foreach(file ${FILES})
  file(RELATIVE_PATH name ${ROOT} ${file})
  if(SUFFIX)
    string(REGEX REPLACE "${SUFFIX}$" "" name "${name}")
  endif()
  file(READ ${file} text HEX)
  # Bytes as octal escapes would be long; hexadecimal ones end at the next pair.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${text}")
  string(REGEX REPLACE "(\\\\x0a)" "\\1\"\n    \"" text "${text}")
  string(APPEND entries "    {\"${name}\",\n    \"${text}\"},\n")
endforeach()
list(LENGTH FILES count)
file(WRITE ${OUTPUT}.new
"#include \"${HEADER}\"

#include <array>

namespace ${NAMESPACE} {

std::span<const ${TYPE}> ${FUNCTION}() {
  static constexpr std::array<${TYPE}, ${count}> kFiles = {{
${entries}  }};
  return kFiles;
}

}  // namespace ${NAMESPACE}
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
