// What a server and its checkpoint writer agree on, besides the ring.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>

namespace capstan {

inline constexpr int kWriterChannelFd = 3;  // a SOCK_SEQPACKET socket: a byte wakes the writer, it sends WriterAnswers
inline constexpr int kWriterRingFd = 4;
inline constexpr size_t kMaxAnswerBytes = 8192;
inline constexpr size_t kMaxAnswerText = 4096;

// The server decides what these mean; the writer ends when the server does. SIGUSR2 tells the writer that the thread
// that started it ended.
inline constexpr int kServerThreadEnded = SIGUSR2;
constexpr std::array<int, 6> WriterBlockedSignals() {
  return {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, kServerThreadEnded};
}

}  // namespace capstan
