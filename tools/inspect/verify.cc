#include <unistd.h>

#include <fmt/core.h>

#include "storage/checkpoint_root.h"
#include "tools/inspect/opened.h"
#include "tools/print.h"

namespace capstan {

int InspectVerify(const InspectOptions& options) {
  std::vector<std::string> unusable;
  const auto reader = OpenForInspection(options.paths[0], &unusable);
  if (!reader.ok()) return InspectUnreadable("verify", reader.status());
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
  if (!status.ok()) return InspectUnreadable("verify", WhileReading(**reader, status));
  const std::string mark = WhatIsWrongWithMark(PosixFileSystem(), (*reader)->folder());
  if (!mark.empty()) Print(stderr, "capstan-inspect verify: warning: {}\n", mark);
  const CheckpointManifest& m = (*reader)->manifest();
  // Of a run: an older one is good, but what is not (OpenForInspection has named it) must not pass for good.
  const int code = ToInt(unusable.empty() ? ExitCode::kDone : ExitCode::kCheckpoint);
  if (options.json) {
    return SayJson("verify",
                   Json{{"checkpoint", (*reader)->folder()},
                        {"good", unusable.empty()},
                        {"rows", m.rows()},
                        {"files", m.file_size()},
                        {"bytes_read", total},
                        {"unusable", unusable},
                        {"warnings", mark.empty() ? Json::array() : Json::array({mark})}},
                   code);
  }
  return Say("verify",
             fmt::format("{} is good: {} rows in {} files, every hash, block checksum, count and digest fits{}\n",
                         (*reader)->folder(), m.rows(), m.file_size(),
                         m.model_sha256().empty() ? "" : ", and so does the model's SHA-256"),
             code);
}

}  // namespace capstan
