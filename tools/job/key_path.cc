#include "tools/job/key_path.h"

#include <algorithm>
#include <charconv>

#include <google/protobuf/descriptor.h>

namespace capstan {

std::optional<std::vector<KeyStep>> ParseKeyPath(std::string_view path) {
  std::vector<KeyStep> steps;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    std::string_view token = path.substr(begin, end - begin);
    KeyStep step;
    if (const size_t bracket = token.find('['); bracket != std::string_view::npos) {
      const std::string_view digits = token.substr(bracket + 1);
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step.index);
      if (error != std::errc() || step.index < 0 ||
          std::string_view(stop, digits.data() + digits.size() - stop) != "]") {
        return std::nullopt;
      }
      token = token.substr(0, bracket);
    }
    if (token.empty()) return std::nullopt;
    step.name = std::string(token);
    steps.push_back(std::move(step));
    begin = end + 1;
  }
  return steps;
}

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return names;
}

std::vector<std::string> ValueNames(const google::protobuf::EnumDescriptor& values) {
  std::vector<std::string> names;
  for (int i = 0; i < values.value_count(); ++i) names.push_back(values.value(i)->name());
  return names;
}

}  // namespace capstan
