# capstan_library(NAME SOURCES … PUBLIC … PRIVATE …) makes capstan_NAME with the alias capstan::NAME.
# PUBLIC: what our headers mention. PRIVATE: what only our sources do.
function(capstan_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(capstan_${name} STATIC ${ARG_SOURCES})
  add_library(capstan::${name} ALIAS capstan_${name})
  target_link_libraries(capstan_${name} PUBLIC capstan_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# capstan_binary(NAME SOURCES … LIBS …) makes build/<preset>/bin/NAME.
function(capstan_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE capstan_flags ${ARG_LIBS})
endfunction()

# capstan_test(NAME SOURCES … LIBS … [LABELS …] [TIMEOUT s]) makes one GoogleTest binary (one per folder) and
# its ctest entry. Labels choose what the sanitizer builds run: unit contract sim threads integration.
function(capstan_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE capstan_flags ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    CAPSTAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CAPSTAN_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
