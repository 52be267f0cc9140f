// Dotted paths of keys in a job: "data.feature[2].column".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Descriptor;
class EnumDescriptor;
}  // namespace google::protobuf

namespace capstan {

struct KeyStep {
  std::string name;
  int index = -1;  // -1: none was given
};

// Nothing if the text is no path (an empty step, a bad index).
std::optional<std::vector<KeyStep>> ParseKeyPath(std::string_view path);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& message);
std::vector<std::string> ValueNames(const google::protobuf::EnumDescriptor& values);

}  // namespace capstan
