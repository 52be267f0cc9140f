#include "tools/train/node_main.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <gflags/gflags.h>
#include <glog/logging.h>

#include "common/random.h"
#include "common/version.h"
#include "kernels/cpu_isa.h"
#include "transport/endpoint.h"
#include "transport/zmq_transport.h"
#include "tools/print.h"

namespace capstan {

void StartLogging(const char* program) {
  signal(SIGUSR1, SIG_IGN);  // it asks for a checkpoint: before anybody listens it must not kill
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = 1;
  google::InitGoogleLogging(program);
  google::InstallFailureSignalHandler();
}

std::string TimedLine(const std::string& line) {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%F %T} {}", fmt::localtime(now), line);
}

void LogLine(const std::string& line) { Print(stderr, "{}\n", TimedLine(line)); }

int UsageError(const absl::Status& status) {
  Print(stderr, "{}\n", std::string(status.message()));
  return ToInt(ExitCode::kUsage);
}

TransportFactory ZmqFactory() {
  return [] { return NewZmqTransport(TransportOptions()); };
}

absl::StatusOr<std::string> SchedulerEndpoint(const std::string& flag) {
  if (flag.empty()) return InvalidArgument("--scheduler=HOST:PORT is missing; the scheduler prints its address");
  const std::string text = flag.find("://") == std::string::npos ? "tcp://" + flag : flag;
  const absl::StatusOr<Endpoint> endpoint = ParsePeerEndpoint(text);
  if (!endpoint.ok()) return While(fmt::format("--scheduler={}", flag), endpoint.status());
  return FormatEndpoint(*endpoint);
}

absl::StatusOr<MemberOptions> MemberFromFlags(NodeRole role, const std::string& scheduler, const std::string& name,
                                              uint32_t join_timeout_ms) {
  if (join_timeout_ms < 1000 || join_timeout_ms > 86'400'000) {
    return InvalidArgument(fmt::format("--join_timeout_ms={} is outside 1000 to 86400000 ms", join_timeout_ms));
  }
  MemberOptions member;
  CAPSTAN_ASSIGN_OR_RETURN(member.scheduler_endpoint, SchedulerEndpoint(scheduler));
  std::string host(256, '\0');
  host = gethostname(host.data(), host.size() - 1) == 0 ? std::string(host.c_str()) : "unknown-host";
  SystemRandom random;
  member.role = role;
  member.host = host;
  member.pid = static_cast<uint32_t>(getpid());
  member.name = !name.empty() ? name
                              : fmt::format("{}-{}-{}", role == NodeRole::kServer ? "server" : "worker", host, getpid());
  member.incarnation = static_cast<Incarnation>(random.Next() | 1);
  member.version = kCapstanVersion;
  member.cpu_isa = BestCpuIsa();
  member.join_timeout = std::chrono::milliseconds(join_timeout_ms);
  return member;
}

}  // namespace capstan
