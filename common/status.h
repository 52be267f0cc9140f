// absl::Status at every edge with a peer, a disk or a user. The code says what the caller does next:
//   kInvalidArgument    the request or the file is wrong: fix it, do not retry
//   kNotFound           no such table, column or file
//   kUnavailable        a peer or disk may come back: retry with back-off
//   kAborted            sent under an old term, generation or shard map: refresh, then start again
//   kResourceExhausted  no credit left: nothing was queued, wait for replies
//   kDataLoss           bytes failed a check
//   kDeadlineExceeded   a wait ended; the message says for whom
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan {

// While("reading 'a.csv'", <line 3: no label>) reads "reading 'a.csv': line 3: no label", same code.
// An OK status stays OK.
absl::Status While(std::string_view doing, const absl::Status& status);

// Makes statuses from fmt-style text without absl's own string types.
absl::Status InvalidArgument(std::string_view message);
absl::Status NotFound(std::string_view message);
absl::Status Unavailable(std::string_view message);
absl::Status Aborted(std::string_view message);
absl::Status ResourceExhausted(std::string_view message);
absl::Status DataLoss(std::string_view message);
absl::Status DeadlineExceeded(std::string_view message);
absl::Status Internal(std::string_view message);

}  // namespace capstan

#define CAPSTAN_RETURN_IF_ERROR(expr)                                                         \
  do {                                                                                        \
    if (absl::Status capstan_status_ = (expr); !capstan_status_.ok()) return capstan_status_; \
  } while (false)

#define CAPSTAN_CONCAT_INNER(a, b) a##b
#define CAPSTAN_CONCAT(a, b) CAPSTAN_CONCAT_INNER(a, b)
#define CAPSTAN_ASSIGN_OR_RETURN(lhs, expr) \
  CAPSTAN_ASSIGN_OR_RETURN_INNER(CAPSTAN_CONCAT(capstan_or_, __LINE__), lhs, expr)
#define CAPSTAN_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return tmp.status();                  \
  lhs = std::move(tmp).value()
