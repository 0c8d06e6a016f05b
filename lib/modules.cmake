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
  target_compile_options(meshtrain_options INTERFACE -fsanitize=${MESHTRAIN_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all
                         -Wno-maybe-uninitialized)  # false alarms in instrumented std::function
  target_link_options(meshtrain_options INTERFACE -fsanitize=${MESHTRAIN_SANITIZE})
endif()

# meshtrain_module(mesh SOURCES a.cc DEPS tensor LIBS PCRE2::PCRE2)
function(meshtrain_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND meshtrain_)
  if(ARG_SOURCES)
    add_library(meshtrain_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(meshtrain_${name} PUBLIC meshtrain_options ${ARG_DEPS} PRIVATE ${ARG_LIBS})
  else()
    add_library(meshtrain_${name} INTERFACE)
    target_link_libraries(meshtrain_${name} INTERFACE meshtrain_options ${ARG_DEPS} ${ARG_LIBS})
  endif()
endfunction()
