#include "tests/tree/layering.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Layering, TheTreeKeepsItsRules) {
  const std::vector<SourceFile> files = ReadTree(CAPSTAN_SOURCE_DIR);
  ASSERT_GT(files.size(), 50u) << "too few files under " << CAPSTAN_SOURCE_DIR
                               << ": is this the source tree?";
  EXPECT_THAT(CheckTree(files), IsEmpty());
}

TEST(Layering, WhatIsAllowedIsAllowed) {
  const std::vector<SourceFile> good = {
      {"common/a.h",
       "#pragma once\n#include <vector>\n#include \"absl/status/status.h\"\n#include \"common/b.h\"\n"},
      {"ps/shard_core.cc",
       "#include \"ps/shard_core.h\"\n#include \"transport/outbox.h\"\n#include \"storage/x.h\"\n"},
      {"models/mlp.cc",
       "#include \"kernels/matmul.h\"\n#include \"data/batch.h\"\n#include \"proto/job.pb.h\"\n"},
      {"kernels/matmul.cc", "#include <dnnl.hpp>\n"},
      {"transport/zmq_transport.cc", "#include <zmq.hpp>\n"},
      {"tools/inspect.cc", "#include \"ps/a.h\"\n#include \"worker/b.h\"\nDEFINE_bool(x, true, \"\");\n"},
      {"worker/worker_main.cc", "#include \"scheduler/a.h\"\nDEFINE_string(x, \"\", \"\");\n"},
      {"tests/ps/a_test.cc", "#include \"worker/b.h\"\n#include \"scheduler/c.h\"\n"},
      {"common/long.cc", std::string(700, '\n')},
  };
  EXPECT_THAT(CheckTree(good), IsEmpty());
}

// One bad file a row: the checker must name the line, the fault and what would be right.
struct BadFile {
  std::string name;
  SourceFile file;
  std::string where;
  std::string what;
  std::string allowed;
};

class BadFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsReportedOnce) {
  const BadFile& bad = GetParam();
  EXPECT_THAT(CheckTree({bad.file}),
              ElementsAre(AllOf(StartsWith(bad.where), HasSubstr(bad.what), HasSubstr(bad.allowed))));
}

INSTANTIATE_TEST_SUITE_P(
    Layering, BadFileTest,
    ::testing::Values(
        BadFile{"Upward",
                {"common/a.cc", "// a\n#include \"proto/frame.h\"\n"},
                "common/a.cc:2: ",
                "common -> proto",
                "common may include nothing of ours"},
        BadFile{"Sideways",
                {"ps/a.cc", "\n\n  #  include \"worker/b.h\"\n"},
                "ps/a.cc:3: ",
                "ps -> worker",
                "ps may include transport, proto, common, kernels, storage"},
        BadFile{"SchedulerToPs",
                {"scheduler/a.h", "#pragma once\n#include \"ps/b.h\"\n"},
                "scheduler/a.h:2: ",
                "scheduler -> ps",
                "scheduler may include"},
        BadFile{"WorkerToScheduler",
                {"worker/a.cc", "#include \"scheduler/b.h\"\n"},
                "worker/a.cc:1: ",
                "worker -> scheduler",
                "worker may include"},
        BadFile{"IntoTests",
                {"data/a.cc", "#include \"tests/b.h\"\n"},
                "data/a.cc:1: ",
                "data -> tests",
                "data may include proto, common"},
        BadFile{
            "NoFolder", {"ps/a.cc", "#include \"b.h\"\n"}, "ps/a.cc:1: ", "includes \"b.h\"", "\"ps/b.h\""},
        BadFile{"NewFolder",
                {"serving/a.cc", "#include \"common/b.h\"\n"},
                "serving/a.cc:1: ",
                "no row",
                "add one"},
        BadFile{"ZmqInPs",
                {"ps/a.cc", "#include <zmq.hpp>\n"},
                "ps/a.cc:1: ",
                "<zmq.hpp>",
                "allowed only in transport/zmq_transport.cc"},
        BadFile{"ZmqElsewhereInTransport",
                {"transport/a.cc", "#include <zmq_addon.hpp>\n"},
                "transport/a.cc:1: ",
                "<zmq_addon.hpp>",
                "transport/zmq_transport.cc"},
        BadFile{
            "Dnnl", {"models/a.cc", "#include <dnnl.hpp>\n"}, "models/a.cc:1: ", "<dnnl.hpp>", "kernels/"},
        BadFile{"OneapiDnnl",
                {"worker/a_main.cc", "#include <oneapi/dnnl/dnnl.hpp>\n"},
                "worker/a_main.cc:1: ",
                "<oneapi/dnnl/dnnl.hpp>",
                "kernels/"},
        BadFile{"RocksDb",
                {"scheduler/a.cc", "#include <rocksdb/db.h>\n"},
                "scheduler/a.cc:1: ",
                "<rocksdb/db.h>",
                "storage/"},
        BadFile{"Cuda",
                {"ps/a.cu", "#include <cuda_runtime.h>\n"},
                "ps/a.cu:1: ",
                "<cuda_runtime.h>",
                "kernels/"},
        BadFile{"Flag",
                {"worker/trainer.cc", "\nDEFINE_int32(x, 1, \"\");\n"},
                "worker/trainer.cc:2: ",
                "DEFINE_int32(",
                "*main.cc"},
        BadFile{"NoPragma", {"data/a.h", "struct A {};\n"}, "data/a.h:1: ", "#pragma once", ""},
        BadFile{"TooLong",
                {"ps/a.cc", std::string(701, '\n')},
                "ps/a.cc:701: ",
                "longer than 700 lines",
                "split"},
        BadFile{"LongScript", {"tools/a.sh", std::string(900, '\n')}, "tools/a.sh:701: ", "longer", "split"},
        BadFile{"SleepInTest",
                {"tests/ps/a_test.cc",
                 "std::this_thread::sleep"
                 "_for(1s);\n"},
                "tests/ps/a_test.cc:1: ",
                "in a test",
                "ManualClock"}),
    [](const ::testing::TestParamInfo<BadFile>& row) { return row.param.name; });

}  // namespace
}  // namespace capstan
