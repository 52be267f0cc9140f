#include "common/status.h"

#include <string>

namespace capstan {
namespace {

absl::Status Make(absl::StatusCode code, std::string_view message) {
  return absl::Status(code, absl::string_view(message.data(), message.size()));
}

}  // namespace

absl::Status While(std::string_view doing, const absl::Status& status) {
  if (status.ok()) return status;
  std::string text(doing);
  text += ": ";
  text.append(status.message().data(), status.message().size());
  return Make(status.code(), text);
}

absl::Status InvalidArgument(std::string_view m) { return Make(absl::StatusCode::kInvalidArgument, m); }
absl::Status NotFound(std::string_view m) { return Make(absl::StatusCode::kNotFound, m); }
absl::Status Unavailable(std::string_view m) { return Make(absl::StatusCode::kUnavailable, m); }
absl::Status Aborted(std::string_view m) { return Make(absl::StatusCode::kAborted, m); }
absl::Status ResourceExhausted(std::string_view m) { return Make(absl::StatusCode::kResourceExhausted, m); }
absl::Status DataLoss(std::string_view m) { return Make(absl::StatusCode::kDataLoss, m); }
absl::Status DeadlineExceeded(std::string_view m) { return Make(absl::StatusCode::kDeadlineExceeded, m); }
absl::Status Internal(std::string_view m) { return Make(absl::StatusCode::kInternal, m); }

}  // namespace capstan
