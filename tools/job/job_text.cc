#include "tools/job/job_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "proto/job.pb.h"
#include "tools/job/key_path.h"
#include "tools/nearest_name.h"

namespace capstan {
namespace {

namespace pb = google::protobuf;

constexpr std::string_view kUnknownValue = "Unknown enumeration value of ";

// The text between the quotes that follow `before` in `message`, or "".
std::string Quoted(const std::string& message, std::string_view before) {
  const size_t at = message.find(before);
  if (at == std::string::npos) return "";
  const size_t begin = at + before.size() + 1;
  const size_t end = message.find('"', begin);
  return end == std::string::npos ? "" : message.substr(begin, end - begin);
}

// The enum of the first field of that name in a message or in what it contains.
const pb::EnumDescriptor* FindEnum(const pb::Descriptor& message, const std::string& field_name) {
  for (int i = 0; i < message.field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.field(i);
    if (field.enum_type() != nullptr && field.name() == field_name) return field.enum_type();
    if (field.message_type() == nullptr) continue;
    if (const pb::EnumDescriptor* found = FindEnum(*field.message_type(), field_name)) return found;
  }
  return nullptr;
}

// What the parser's message lacks: the name that was probably meant.
std::string Hint(const std::string& message) {
  const pb::Descriptor& root = *JobConfig::descriptor();
  if (const std::string field = Quoted(message, "has no field named "); !field.empty()) {
    const pb::Descriptor* in = root.file()->pool()->FindMessageTypeByName(Quoted(message, "Message type "));
    return in == nullptr ? "" : NameHint(field, FieldNames(*in));
  }
  if (const std::string value = Quoted(message, kUnknownValue); !value.empty()) {
    const pb::EnumDescriptor* in = FindEnum(root, Quoted(message, "for field "));
    return in == nullptr ? "" : NameHint(value, ValueNames(*in));
  }
  return "";
}

class Collector final : public pb::io::ErrorCollector {
 public:
  Collector(std::string file, std::string_view text) : file_(std::move(file)) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      lines_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  // Protobuf counts lines and columns from 0, and tells of an enum value only after it has read on to the
  // next word.
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (const std::string value = Quoted(message, kUnknownValue); !value.empty())
      StepBackTo(value, &line, &column);
    std::string_view shown = LineAt(line);
    shown.remove_prefix(std::min(shown.find_first_not_of(" \t"), shown.size()));
    std::string_view what = message;
    if (what.ends_with('.')) what.remove_suffix(1);
    errors_.push_back(fmt::format("{}:{}:{}: {}{}, in: {}", file_, line + 1, column + 1, what, Hint(message),
                                  shown.substr(0, 80)));
  }
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    LOG(WARNING) << file_ << ":" << line + 1 << ":" << column + 1 << ": " << message;
  }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  std::string_view LineAt(int line) const {
    return line >= 0 && static_cast<size_t>(line) < lines_.size() ? lines_[line] : "";
  }
  void StepBackTo(std::string_view word, int* line, int* column) const {
    for (int back = *line; back >= 0; --back) {
      const size_t at =
          LineAt(back).rfind(word, back == *line ? static_cast<size_t>(*column) : std::string::npos);
      if (at == std::string_view::npos) continue;
      *line = back;
      *column = static_cast<int>(at);
      return;
    }
  }

  const std::string file_;
  std::vector<std::string_view> lines_;
  std::vector<std::string> errors_;
};

}  // namespace

struct JobText::Impl {
  std::string file;
  JobConfig job;
  pb::TextFormat::ParseInfoTree places;
};

JobText::JobText() : impl_(std::make_unique<Impl>()) {}
JobText::~JobText() = default;
JobText::JobText(JobText&&) noexcept = default;
JobText& JobText::operator=(JobText&&) noexcept = default;

absl::StatusOr<JobText> JobText::Parse(std::string_view text, const std::string& file) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte order mark, from some editors
  JobText result;
  result.impl_->file = file;
  Collector collector(file, text);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.WriteLocationsTo(&result.impl_->places);
  if (!parser.ParseFromString(std::string(text), &result.impl_->job)) {
    return InvalidArgument(JoinText(collector.errors(), "\n"));
  }
  return result;
}

const JobConfig& JobText::job() const { return impl_->job; }

std::string JobText::Where(std::string_view key) const {
  std::string best = impl_->file;
  const auto steps = ParseKeyPath(key);
  if (!steps) return best;
  const pb::Descriptor* message = JobConfig::descriptor();
  const pb::TextFormat::ParseInfoTree* tree = &impl_->places;
  for (const KeyStep& step : *steps) {
    const pb::FieldDescriptor* field = message->FindFieldByName(step.name);
    if (field == nullptr) return best;
    const int index = field->is_repeated() ? std::max(step.index, 0) : -1;
    const pb::TextFormat::ParseLocation place = tree->GetLocation(field, index);
    if (place.line < 0) return best;
    best = fmt::format("{}:{}:{}", impl_->file, place.line + 1, place.column + 1);
    if (field->message_type() == nullptr) return best;
    tree = tree->GetTreeForNested(field, index);
    message = field->message_type();
    if (tree == nullptr) return best;
  }
  return best;
}

std::string PrintJob(const JobConfig& job) {
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  CHECK(printer.PrintToString(job, &text)) << "a job cannot be printed";
  return text;
}

}  // namespace capstan
