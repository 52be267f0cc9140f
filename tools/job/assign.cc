#include "tools/job/assign.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "proto/job.pb.h"
#include "tools/job/key_path.h"
#include "tools/nearest_name.h"

namespace capstan {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

template <typename T>
std::optional<T> ReadNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

absl::Status BadValue(const Field& field, std::string_view value, std::string_view wanted) {
  return InvalidArgument(
      fmt::format("'{}' is no value of '{}', which wants {}", value, field.name(), wanted));
}

// Sets or (repeated) adds one value of plain type.
absl::Status PutScalar(pb::Message* message, const Field& field, const std::string& text) {
  const pb::Reflection& reflection = *message->GetReflection();
  const bool add = field.is_repeated();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_UINT32: {
      const auto value = ReadNumber<uint32_t>(text);
      if (!value) return BadValue(field, text, "a whole number from 0 to 4294967295");
      add ? reflection.AddUInt32(message, &field, *value) : reflection.SetUInt32(message, &field, *value);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_UINT64: {
      const auto value = ReadNumber<uint64_t>(text);
      if (!value) return BadValue(field, text, "a whole number from 0 to 18446744073709551615");
      add ? reflection.AddUInt64(message, &field, *value) : reflection.SetUInt64(message, &field, *value);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_DOUBLE: {
      const auto value = ReadNumber<double>(text);
      if (!value || !std::isfinite(*value)) return BadValue(field, text, "a number");
      add ? reflection.AddDouble(message, &field, *value) : reflection.SetDouble(message, &field, *value);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_BOOL: {
      if (text != "true" && text != "false") return BadValue(field, text, "true or false");
      add ? reflection.AddBool(message, &field, text == "true")
          : reflection.SetBool(message, &field, text == "true");
      return absl::OkStatus();
    }
    case Field::CPPTYPE_ENUM: {
      const pb::EnumValueDescriptor* value = field.enum_type()->FindValueByName(text);
      const std::vector<std::string> names = ValueNames(*field.enum_type());
      if (value == nullptr) {
        return BadValue(field, text,
                        fmt::format("one of {}{}", JoinText(names, ", "), NameHint(text, names)));
      }
      add ? reflection.AddEnum(message, &field, value) : reflection.SetEnum(message, &field, value);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_STRING:
      add ? reflection.AddString(message, &field, text) : reflection.SetString(message, &field, text);
      return absl::OkStatus();
    default:
      return Internal(fmt::format("'{}' has a type that cannot be set by flag; write it into the job file",
                                  field.name()));
  }
}

class FirstError final : public pb::io::ErrorCollector {
 public:
  void AddError(int, pb::io::ColumnNumber column, const std::string& message) override {
    if (first_.empty()) first_ = fmt::format("at character {}: {}", column + 1, message);
  }
  const std::string& first() const { return first_; }

 private:
  std::string first_;
};

absl::Status PutMessage(pb::Message* parent, const Field& field, bool merge, const std::string& text) {
  const pb::Reflection& reflection = *parent->GetReflection();
  pb::Message* target =
      field.is_repeated() ? reflection.AddMessage(parent, &field) : reflection.MutableMessage(parent, &field);
  if (!field.is_repeated() && !merge) target->Clear();
  FirstError errors;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (!parser.MergeFromString(text, target)) {
    return InvalidArgument(fmt::format("'{}' wants the keys of a {} in text format; {}", field.name(),
                                       field.message_type()->name(), errors.first()));
  }
  return absl::OkStatus();
}

bool IsNumber(const Field& field) {
  return field.cpp_type() == Field::CPPTYPE_UINT32 || field.cpp_type() == Field::CPPTYPE_UINT64 ||
         field.cpp_type() == Field::CPPTYPE_DOUBLE;
}

absl::Status PutValue(pb::Message* message, const Field& field, const Assignment& assignment) {
  const pb::Reflection& reflection = *message->GetReflection();
  if (field.is_repeated() && !assignment.append) reflection.ClearField(message, &field);
  if (field.message_type() != nullptr) return PutMessage(message, field, assignment.append, assignment.value);
  if (!field.is_repeated()) {
    if (assignment.append) {
      return InvalidArgument(fmt::format("'{}' holds one value: += does not fit, write =", field.name()));
    }
    return PutScalar(message, field, assignment.value);
  }
  if (assignment.value.empty() && !assignment.append) return absl::OkStatus();  // "key=": no values
  if (!IsNumber(field)) return PutScalar(message, field, assignment.value);
  for (size_t begin = 0; begin <= assignment.value.size();) {
    const size_t end = std::min(assignment.value.find(',', begin), assignment.value.size());
    CAPSTAN_RETURN_IF_ERROR(PutScalar(message, field, assignment.value.substr(begin, end - begin)));
    begin = end + 1;
  }
  return absl::OkStatus();
}

// The field that a step names. Refuses to leave the chosen member of a oneof by a key inside another one.
absl::StatusOr<const Field*> FieldOf(const pb::Message& message, const KeyStep& step, bool last) {
  const pb::Descriptor& type = *message.GetDescriptor();
  const Field* field = type.FindFieldByName(step.name);
  if (field == nullptr) {
    return InvalidArgument(
        fmt::format("{} has no key '{}'{}", type.name(), step.name, NameHint(step.name, FieldNames(type))));
  }
  if (const pb::OneofDescriptor* choice = field->real_containing_oneof(); choice != nullptr && !last) {
    const Field* chosen = message.GetReflection()->GetOneofFieldDescriptor(message, choice);
    if (chosen != nullptr && chosen != field) {
      return InvalidArgument(fmt::format("'{}' is chosen, not '{}'; to change that set '{}=' first",
                                         chosen->name(), field->name(), field->name()));
    }
  }
  if (step.index >= 0 && !field->is_repeated()) {
    return InvalidArgument(fmt::format("'{}' holds one value: [{}] does not fit", step.name, step.index));
  }
  return field;
}

absl::StatusOr<pb::Message*> StepInto(pb::Message* message, const Field& field, const KeyStep& step) {
  const pb::Reflection& reflection = *message->GetReflection();
  if (field.message_type() == nullptr) {
    return InvalidArgument(fmt::format("'{}' is a plain value: nothing can follow it", step.name));
  }
  if (!field.is_repeated()) return reflection.MutableMessage(message, &field);
  const int size = reflection.FieldSize(*message, &field);
  if (step.index < 0 || step.index >= size) {
    return InvalidArgument(
        fmt::format("'{}' has {} entries: write {}[i] with i below that, or add one with {}+=", step.name,
                    size, step.name, step.name));
  }
  return reflection.MutableRepeatedMessage(message, &field, step.index);
}

}  // namespace

absl::StatusOr<Assignment> ParseAssignment(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidArgument("wanted key=value or key+=value, for example optimizer.learning_rate=0.01");
  }
  Assignment assignment;
  assignment.append = text[equals - 1] == '+';
  assignment.key = std::string(text.substr(0, assignment.append ? equals - 1 : equals));
  assignment.value = std::string(text.substr(equals + 1));
  if (!ParseKeyPath(assignment.key)) {
    return InvalidArgument(fmt::format(
        "'{}' is no key; wanted names joined by dots, for example data.feature[2].kind", assignment.key));
  }
  return assignment;
}

absl::Status Assign(const Assignment& assignment, JobConfig* job) {
  const auto steps = ParseKeyPath(assignment.key);
  if (!steps) return InvalidArgument(fmt::format("'{}' is no key", assignment.key));
  pb::Message* message = job;
  for (size_t i = 0; i + 1 < steps->size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const Field* const field, FieldOf(*message, (*steps)[i], false));
    CAPSTAN_ASSIGN_OR_RETURN(message, StepInto(message, *field, (*steps)[i]));
  }
  const KeyStep& last = steps->back();
  CAPSTAN_ASSIGN_OR_RETURN(const Field* const field, FieldOf(*message, last, true));
  if (last.index < 0) return PutValue(message, *field, assignment);
  return InvalidArgument(fmt::format(
      "'{}' cannot be set by index; set a key of that entry, or the whole list with {}=", last.name,
      last.name));
}

}  // namespace capstan
