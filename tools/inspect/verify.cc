#include <unistd.h>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/print.h"

namespace capstan {

int InspectVerify(const InspectOptions& options) {
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectFailure("verify", reader.status());
  const bool terminal = isatty(STDERR_FILENO) == 1;
  uint64_t shown = 0, total = 0;
  const absl::Status status = (*reader)->VerifyAll([&](uint64_t bytes) {
    constexpr uint64_t kShowEvery = uint64_t{64} << 20;
    total = bytes;
    if (!terminal || bytes - shown < kShowEvery) return;
    shown = bytes;
    Print(stderr, "\rread {}", Bytes(bytes));
  });
  if (terminal && shown > 0) Print(stderr, "\r\033[K");
  if (!status.ok()) {
    InspectFailure("verify", status);
    return ToInt(ExitCode::kCheckpoint);
  }
  const CheckpointManifest& m = (*reader)->manifest();
  if (options.json) {
    return SayJson("verify", Json{{"checkpoint", (*reader)->folder()}, {"good", true}, {"rows", m.rows()},
                                  {"files", m.file_size()}, {"bytes_read", total}});
  }
  return Say("verify", fmt::format("{} is good: {} rows in {} files, every hash, block checksum, count and digest fits{}\n",
                                   (*reader)->folder(), m.rows(), m.file_size(),
                                   m.model_sha256().empty() ? "" : ", and so does the model's SHA-256"));
}

}  // namespace capstan
