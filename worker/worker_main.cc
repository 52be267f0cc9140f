// capstan-worker: one worker of a job.
#include <gflags/gflags.h>

#include "tools/flags.h"
#include "tools/train/node_main.h"
#include "worker/worker_node.h"

DEFINE_string(scheduler, "", "Address of the scheduler, HOST:PORT or tcp://HOST:PORT.");
DEFINE_string(name, "", "Name in messages; unique in the job. Default: worker-HOST-PID.");
DEFINE_uint32(join_timeout_ms, 60000, "Longest wait for a place in the job. Unit: ms. Range: 1000 to 86400000.");

namespace capstan {
namespace {

int RunWorker(const CommandLine&) {
  absl::StatusOr<MemberOptions> member =
      MemberFromFlags(NodeRole::kWorker, FLAGS_scheduler, FLAGS_name, FLAGS_join_timeout_ms);
  if (!member.ok()) return UsageError(member.status());
  WorkerOptions options;
  options.member = *std::move(member);
  options.make_transport = ZmqFactory();
  options.file_system = &PosixFileSystem();
  options.log = LogLine;
  WorkerNode node(std::move(options));
  return RunUntilEnd(node);
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  const capstan::Command command{.name = "capstan-worker",
                                 .summary = "one worker of a job: reads its data, computes gradients",
                                 .usage = "  capstan-worker --scheduler=10.0.0.1:17100\n"
                                          "The job and its data paths come from the scheduler; the data files must be "
                                          "there on this machine too.\nExit codes: README.md.",
                                 .flags = {"scheduler", "name", "join_timeout_ms"},
                                 .run = capstan::RunWorker};
  capstan::StartLogging(argv[0]);
  return capstan::RunCommand(command, argc, argv);
}
