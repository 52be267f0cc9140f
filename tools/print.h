// Text for a person. Unlike fmt::print it never throws: a terminal or a pipe that has gone must not end a run.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace capstan {

// False: not all of it could be written (kept in the stream's error flag too).
template <typename... Args>
bool Print(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  return std::fwrite(text.data(), 1, text.size(), out) == text.size();
}

template <typename... Args>
bool Print(fmt::format_string<Args...> format, Args&&... args) {
  return Print(stdout, format, std::forward<Args>(args)...);
}

}  // namespace capstan
