# Settings of the whole build. The bits of a training run depend on these flags (ARCHITECTURE.md, "Bits"):
# no contraction, no fast-math, one baseline (x86-64-v3); AVX-512 is chosen at run time where it is found.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Position-independent executables, at the link as well as at the compilation.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or Sanitize" FORCE)
endif()

option(CAPSTAN_TESTS "Build the tests" ON)
option(CAPSTAN_WERROR "Treat warnings in our own code as errors" OFF)
option(CAPSTAN_FUZZ "Build only the libFuzzer targets and what they need (clang only)" OFF)
set(CAPSTAN_CUDA AUTO CACHE STRING "AUTO: compile the CUDA code if a toolkit is found; ON: it must be; OFF")
set(CAPSTAN_SANITIZE "" CACHE STRING "Sanitizers for our own code, for example address,undefined or thread")
# Unity builds (the sanitizer presets) make one unit of each target, so that which files share one does not
# change when a file is added.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

find_program(CAPSTAN_CCACHE ccache)
# Messages name files from the root, wherever it is.
set(capstan_root ${PROJECT_SOURCE_DIR})
if(CAPSTAN_CCACHE)
  # With these two, a clone in another folder uses what this one has compiled; no absolute path may be in a flag.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CAPSTAN_CCACHE})
  file(RELATIVE_PATH capstan_root ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/)
  string(REGEX REPLACE "/$" "" capstan_root "${capstan_root}")
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")

# Everything of ours links capstan_flags: libraries, binaries, tests. What is compiled by nvcc takes none of it.
add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR})
set(capstan_compile
  -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wformat=2
  -fstack-protector-strong -fstack-clash-protection -fcf-protection
  -ffile-prefix-map=${capstan_root}/=)
set(capstan_link -Wl,-z,relro,-z,now,-z,noexecstack)
if(CAPSTAN_WERROR)
  list(APPEND capstan_compile -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND capstan_compile -Wno-stringop-overflow)  # gcc 12 is wrong about fmt's format strings
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build includes .cc files, and gcc takes their anonymous namespaces for those of a header.
  list(APPEND capstan_compile -Wno-subobject-linkage)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  list(APPEND capstan_compile -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)  # needs an optimising build
endif()
if(CAPSTAN_SANITIZE)
  list(APPEND capstan_compile -fsanitize=${CAPSTAN_SANITIZE} -fno-sanitize-recover=all)
  list(APPEND capstan_link -fsanitize=${CAPSTAN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc's instrumentation hides initialisations from this warning; the release build has it on.
    list(APPEND capstan_compile -Wno-maybe-uninitialized)
  endif()
endif()
if(CAPSTAN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "CAPSTAN_FUZZ=ON needs clang (preset fuzz); the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  list(APPEND capstan_compile -fsanitize=fuzzer-no-link)  # coverage of the libraries under test
endif()
find_program(CAPSTAN_LLD ld.lld)
if(CAPSTAN_LLD)
  list(APPEND capstan_link -fuse-ld=lld)
endif()
target_compile_options(capstan_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${capstan_compile}>")
target_link_options(capstan_flags INTERFACE "$<$<LINK_LANGUAGE:CXX>:${capstan_link}>")
