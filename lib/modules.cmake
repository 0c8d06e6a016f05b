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

if(MESHTRAIN_UNITY)
  # A class whose parts are in an unnamed namespace of its own file looks as if that were a header.
  target_compile_options(meshtrain_options INTERFACE -Wno-subobject-linkage)
endif()

if(MESHTRAIN_FUZZ)
  target_compile_options(meshtrain_options INTERFACE -fsanitize-coverage=trace-pc,trace-cmp)
endif()

# Code that reads texts, builds graphs and reports takes a few milliseconds of a run. At -O1 it compiles in two
# thirds of the time, without optimization, which is enough for sanitizers, in half of it.
set(MESHTRAIN_O1_OPTIONS $<$<CONFIG:Release>:-O1>)
set(MESHTRAIN_COLD_OPTIONS ${MESHTRAIN_O1_OPTIONS})
if(MESHTRAIN_SANITIZE)
  set(MESHTRAIN_COLD_OPTIONS -O0)
endif()

set(MESHTRAIN_MODULE_KIND STATIC)
if(MESHTRAIN_SHARED)
  set(MESHTRAIN_MODULE_KIND SHARED)
endif()

# meshtrain_module(mesh COLD SOURCES a.cc SHARED b.cc DEPS tensor LIBS PCRE2::PCRE2)
# COLD: code as above; O1: it is so in Release alone; WARM: it is so under sanitizers alone.
# SHARED: sources that the libraries loaded by the program have, too: code for shared libraries with nothing exported.
function(meshtrain_module name)
  cmake_parse_arguments(ARG "COLD;O1;WARM" "" "SOURCES;SHARED;DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND meshtrain_)
  if(NOT ARG_SOURCES)
    add_library(meshtrain_${name} INTERFACE)
    target_link_libraries(meshtrain_${name} INTERFACE meshtrain_options ${ARG_DEPS} ${ARG_LIBS})
    return()
  endif()
  add_library(meshtrain_${name} ${MESHTRAIN_MODULE_KIND} ${ARG_SOURCES})
  target_link_libraries(meshtrain_${name} PUBLIC meshtrain_options ${ARG_DEPS} PRIVATE ${ARG_LIBS})
  if(MESHTRAIN_SANITIZE MATCHES undefined AND name MATCHES "^(tensor|data)$")
    target_compile_options(meshtrain_${name} PRIVATE -fsanitize=alignment)
  endif()
  if(ARG_COLD OR (ARG_WARM AND MESHTRAIN_SANITIZE))
    target_compile_options(meshtrain_${name} PRIVATE ${MESHTRAIN_COLD_OPTIONS})
  elseif(ARG_O1)
    target_compile_options(meshtrain_${name} PRIVATE ${MESHTRAIN_O1_OPTIONS})
  endif()
  if(ARG_SHARED)
    add_library(meshtrain_${name}_shared OBJECT ${ARG_SHARED})
    target_link_libraries(meshtrain_${name}_shared PRIVATE meshtrain_options fmt::fmt)
    set_target_properties(meshtrain_${name}_shared PROPERTIES POSITION_INDEPENDENT_CODE ON)
    if(NOT MESHTRAIN_SHARED)
      set_target_properties(meshtrain_${name}_shared PROPERTIES
        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    endif()
    target_sources(meshtrain_${name} PRIVATE $<TARGET_OBJECTS:meshtrain_${name}_shared>)
  endif()
endfunction()

# meshtrain_embed_files(OUTPUT.cc FILES a.yaml ROOT FOLDER HEADER h.h TYPE Template FUNCTION templates [SUFFIX .yaml]
# [NAMESPACE meshtrain]): makes a source that has the texts of the files (scripts/embed_files.cmake).
function(meshtrain_embed_files output)
  cmake_parse_arguments(ARG "" "ROOT;HEADER;TYPE;FUNCTION;SUFFIX;NAMESPACE" "FILES" ${ARGN})
  list(JOIN ARG_FILES "$<SEMICOLON>" _files)
  set(_definitions "-DFILES=${_files}" -DOUTPUT=${output})
  foreach(name ROOT HEADER TYPE FUNCTION SUFFIX NAMESPACE)
    list(APPEND _definitions "-D${name}=${ARG_${name}}")
  endforeach()
  set(_script ${PROJECT_SOURCE_DIR}/scripts/embed_files.cmake)
  get_filename_component(_name ${output} NAME)
  add_custom_command(OUTPUT ${output} COMMAND ${CMAKE_COMMAND} ${_definitions} -P ${_script}
    DEPENDS ${ARG_FILES} ${_script} COMMENT "Embedding files in ${_name}" VERBATIM)
endfunction()
