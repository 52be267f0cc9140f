#include "kernels/cpu_isa.h"

#include <fmt/format.h>

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace capstan {
namespace {

struct IsaName {
  std::string_view name;
  dnnl::cpu_isa isa;
};
// Not the newest instructions of a machine but the common core: a CPU with AMX gives the bits of one without.
constexpr IsaName kIsaNames[] = {{"avx2", dnnl::cpu_isa::avx2}, {"avx512", dnnl::cpu_isa::avx512_core}};

std::mutex isa_mutex;
std::string pinned_isa;  // guarded by isa_mutex; empty: not pinned

}  // namespace

std::string_view BestCpuIsa() {
  __builtin_cpu_init();
  const bool has_core = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_core ? "avx512" : "avx2";
}

absl::Status PinCpuIsa(std::string_view name) {
  const IsaName* wanted = nullptr;
  for (const IsaName& known : kIsaNames) {
    if (known.name == name) wanted = &known;
  }
  if (wanted == nullptr)
    return InvalidArgument(fmt::format("cpu_isa '{}' is unknown; use avx2 or avx512", name));
  if (name == "avx512" && BestCpuIsa() != "avx512") {
    return InvalidArgument(
        "cpu_isa is avx512, but this machine has none; set cpu_isa to avx2 for the whole job");
  }
  const std::lock_guard lock(isa_mutex);
  if (pinned_isa == name) return absl::OkStatus();
  if (!pinned_isa.empty()) {
    return InvalidArgument(fmt::format(
        "cpu_isa '{}' was asked for in a process pinned to '{}'; start a new process", name, pinned_isa));
  }
  // Asking for the effective one also freezes it, so that nothing can change it afterwards.
  const dnnl::status set = dnnl::set_max_cpu_isa(wanted->isa);
  if (set != dnnl::status::success || dnnl::get_effective_cpu_isa() != wanted->isa) {
    return absl::Status(absl::StatusCode::kFailedPrecondition,
                        "oneDNN was used before cpu_isa was pinned; pin it at the start of the process");
  }
  pinned_isa = name;
  return absl::OkStatus();
}

}  // namespace capstan
