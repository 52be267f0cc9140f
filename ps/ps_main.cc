// capstan-ps: one server of a job.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <unistd.h>

#include <fmt/core.h>

#include "common/version.h"
#include "kernels/cpu_isa.h"
#include "ps/server_node.h"
#include "tools/flags.h"
#include "tools/train/checkpoint_io.h"
#include "tools/train/node_main.h"
#include "tools/train/programs.h"
#include "transport/endpoint.h"

DEFINE_string(scheduler, "", "Address of the scheduler, HOST:PORT or tcp://HOST:PORT.");
DEFINE_string(name, "", "Name in messages; unique in the job. Default: server-HOST-PID.");
DEFINE_uint32(shards, 1, "Shards, one thread and one port each. Range: 1 to 256. Must be what the job says.");
DEFINE_string(bind, "", "Address to listen at. Default: the one of the route to the scheduler.");
DEFINE_uint32(port, 0, "Port of the first shard, the next ones follow. 0: free ports below 32768.");
DEFINE_string(advertise, "", "Address that others use to reach this server. Default: --bind.");
DEFINE_uint32(join_timeout_ms, 60000, "Longest wait for a place in the job. Unit: ms. Range: 1000 to 86400000.");

namespace capstan {
namespace {

int RunServer(const CommandLine&) {
  absl::StatusOr<MemberOptions> member =
      MemberFromFlags(NodeRole::kServer, FLAGS_scheduler, FLAGS_name, FLAGS_join_timeout_ms);
  if (!member.ok()) return UsageError(member.status());
  if (FLAGS_shards < 1 || FLAGS_shards > 256) {
    return UsageError(InvalidArgument(fmt::format("--shards={} is outside 1 to 256", FLAGS_shards)));
  }
  if (FLAGS_port > 65535 || (FLAGS_port != 0 && FLAGS_port + FLAGS_shards > 65536)) {
    return UsageError(InvalidArgument(fmt::format("--port={} is outside 0 to 65535", FLAGS_port)));
  }
  std::string bind = FLAGS_bind;
  if (bind.empty()) {
    const absl::StatusOr<std::string> route = AdvertisedAddress(member->scheduler_endpoint);
    if (!route.ok()) return UsageError(route.status());
    bind = *route;
  }
  if (const absl::Status programs = CheckPrograms(/*processes=*/false); !programs.ok()) return UsageError(programs);
  ServerOptions options;
  options.member = *std::move(member);
  options.shards = FLAGS_shards;
  options.bind_endpoint = [bind](uint32_t shard) {
    return fmt::format("tcp://{}:{}", bind, FLAGS_port == 0 ? 0 : FLAGS_port + shard);
  };
  options.advertise_host = FLAGS_advertise;
  if (bind == "0.0.0.0" && FLAGS_advertise.empty()) {
    const absl::StatusOr<std::string> route = AdvertisedAddress(options.member.scheduler_endpoint);
    if (!route.ok()) return UsageError(route.status());
    options.advertise_host = *route;
  }
  options.make_transport = ZmqFactory();
  options.log = LogLine;
  AddCheckpoints(&options);
  ServerNode node(std::move(options));
  return RunUntilEnd(node);
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  const capstan::Command command{
      .name = "capstan-ps",
      .summary = "one server of a job: keeps a part of the parameters in memory",
      .usage = "  capstan-ps --scheduler=10.0.0.1:17100 --shards=2\n"
               "Start it before or after the scheduler. Exit codes: README.md.",
      .flags = {"scheduler", "name", "shards", "bind", "port", "advertise", "join_timeout_ms"},
      .run = capstan::RunServer};
  capstan::StartLogging(argv[0]);
  return capstan::RunCommand(command, argc, argv);
}
