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

# What a sanitizer does when it finds something, for every test of a sanitizer build. Child processes inherit it.
set(capstan_test_environment "")
if(CAPSTAN_SANITIZE MATCHES "address")
  list(APPEND capstan_test_environment
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
elseif(CAPSTAN_SANITIZE MATCHES "thread")
  list(APPEND capstan_test_environment
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
endif()

# tests_LABEL builds the tests that carry the label, so that a sanitizer build leaves out what it does not run.
#   unit         one folder's own code            sim          a cluster in one thread from a seed
#   contract     one suite over all transports    threads      starts threads: ThreadSanitizer runs it
#   integration  real processes; runs alone       tree         reads the source tree or the binaries' headers
set(capstan_labels unit contract sim threads integration tree)
foreach(label ${capstan_labels})
  add_custom_target(tests_${label})
endforeach()

# capstan_label_test(TEST LABEL … [BINARY target]) gives a ctest entry its labels and the sanitizers' settings.
function(capstan_label_test name)
  cmake_parse_arguments(ARG "" "BINARY" "" ${ARGN})
  if(NOT ARG_BINARY)
    set(ARG_BINARY ${name})
  endif()
  foreach(label ${ARG_UNPARSED_ARGUMENTS})
    if(NOT label IN_LIST capstan_labels)
      message(FATAL_ERROR "test ${name}: unknown label '${label}'; known: ${capstan_labels}")
    endif()
    add_dependencies(tests_${label} ${ARG_BINARY})
  endforeach()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_UNPARSED_ARGUMENTS}" ENVIRONMENT "${capstan_test_environment}")
  if("integration" IN_LIST ARG_UNPARSED_ARGUMENTS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)  # its time limits assume an idle machine
  endif()
endfunction()

# capstan_test(NAME SOURCES … LIBS … LABELS … [TIMEOUT s]) makes one GoogleTest binary (one per folder) and its
# ctest entry. The results go to build/<preset>/results/NAME.xml, from which tools/test.sh counts.
function(capstan_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LABELS)
    message(FATAL_ERROR "test ${name} has no label; give one or more of ${capstan_labels}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE capstan_flags ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    CAPSTAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CAPSTAN_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${name} COMMAND ${name} --gtest_output=xml:${CMAKE_BINARY_DIR}/results/${name}.xml)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  capstan_label_test(${name} ${ARG_LABELS})
endfunction()

# capstan_fuzz_target(NAME SOURCES … LIBS …) makes a libFuzzer binary; for tests/fuzz, with CAPSTAN_FUZZ only.
function(capstan_fuzz_target name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE capstan_flags ${ARG_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
