# Settings of the whole build. The bits of a training run depend on these flags (ARCHITECTURE.md, "Bits"):
# no contraction, no fast-math, one baseline (x86-64-v3); AVX-512 is chosen at run time where it is found.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or Sanitize" FORCE)
endif()

option(CAPSTAN_TESTS "Build the tests" ON)
option(CAPSTAN_WERROR "Treat warnings in our own code as errors" OFF)
option(CAPSTAN_FUZZ "Build the libFuzzer targets (clang only)" OFF)
set(CAPSTAN_CUDA AUTO CACHE STRING "AUTO: compile the CUDA code if a toolkit is found; ON: it must be; OFF")
set(CAPSTAN_SANITIZE "" CACHE STRING "Sanitizers for our own code, for example address,undefined or thread")

find_program(CAPSTAN_CCACHE ccache)
if(CAPSTAN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CAPSTAN_CCACHE})
endif()

add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(capstan_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wformat=2 -fstack-protector-strong
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(CAPSTAN_WERROR)
  target_compile_options(capstan_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
target_link_options(capstan_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")
if(CAPSTAN_SANITIZE)
  target_compile_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE})
endif()
find_program(CAPSTAN_LLD ld.lld)
if(CAPSTAN_LLD)
  target_link_options(capstan_flags INTERFACE -fuse-ld=lld)
endif()
