# One CMake target per folder of lib/. A module may include the headers of the modules it lists and
# of those that these include; tests/include_direction.py compares the #include lines with this.

add_library(meshtrain_options INTERFACE)
target_include_directories(meshtrain_options INTERFACE ${PROJECT_SOURCE_DIR}/lib)
target_compile_options(meshtrain_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(MESHTRAIN_WERROR)
  # GCC 12 sees overlapping copies in `"text" + std::string` that are none (GCC bug 105651).
  target_compile_options(meshtrain_options INTERFACE -Werror -Wno-restrict)
endif()
if(MESHTRAIN_SANITIZE)
  # The checks of every pointer double the time of compiling: a null pointer ends the program under
  # AddressSanitizer anyway, and alignment is checked where bytes of files are read (below).
  target_compile_options(meshtrain_options INTERFACE -fsanitize=${MESHTRAIN_SANITIZE}
                         -fno-sanitize=null,alignment,vptr,object-size
                         -fno-omit-frame-pointer -fno-sanitize-recover=all
                         -Wno-maybe-uninitialized)  # false alarms in instrumented std::function
  target_link_options(meshtrain_options INTERFACE -fsanitize=${MESHTRAIN_SANITIZE})
endif()

if(MESHTRAIN_PCH)
  # GCC 12 loses in precompiled headers what it knows of their strings, and sees overflows.
  target_compile_options(meshtrain_options INTERFACE -Wno-stringop-overflow -Wno-array-bounds)
endif()

if(MESHTRAIN_FUZZ)
  target_compile_options(meshtrain_options INTERFACE -fsanitize-coverage=trace-pc,trace-cmp)
endif()

# What nearly every file includes, parsed once. A compiler cache does not go with it.
set(MESHTRAIN_COMMON_HEADERS <algorithm> <cmath> <functional> <map> <memory> <optional> <span> <string>
    <string_view> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)

# meshtrain_module(mesh SOURCES a.cc DEPS tensor LIBS PCRE2::PCRE2)
function(meshtrain_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND meshtrain_)
  if(ARG_SOURCES)
    add_library(meshtrain_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(meshtrain_${name} PUBLIC meshtrain_options ${ARG_DEPS} PRIVATE ${ARG_LIBS})
    if(MESHTRAIN_SANITIZE MATCHES undefined AND name MATCHES "^(tensor|data)$")
      target_compile_options(meshtrain_${name} PRIVATE -fsanitize=alignment)
    endif()
    if(MESHTRAIN_PCH AND name MATCHES "^(base|backend|exec)$")  # with OpenMP they are others
      target_precompile_headers(meshtrain_${name} PRIVATE ${MESHTRAIN_COMMON_HEADERS})
    elseif(MESHTRAIN_PCH)
      target_precompile_headers(meshtrain_${name} REUSE_FROM meshtrain_base)
    endif()
  else()
    add_library(meshtrain_${name} INTERFACE)
    target_link_libraries(meshtrain_${name} INTERFACE meshtrain_options ${ARG_DEPS} ${ARG_LIBS})
  endif()
endfunction()
