#include "tests/integration/integration_test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan::testing {
namespace {

uint64_t Mix(uint64_t x) {  // splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
double Uniform(uint64_t x) { return static_cast<double>(Mix(x) >> 11) * 0x1p-53; }

std::string FreshFolder() {
  static int number = 0;
  const std::string folder = fmt::format("{}/integration.{}.{}", ::testing::TempDir(), getpid(), ++number);
  std::filesystem::create_directories(folder);
  return std::filesystem::canonical(folder).string();
}

// A port that nobody uses, below those that the system gives out by itself.
uint16_t FreePort() {
  static uint32_t next = 0;
  for (int tries = 0; tries < 2000; ++tries) {
    const auto port = static_cast<uint16_t>(20000 + (static_cast<uint32_t>(getpid()) * 16 + next++) % 12000);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PCHECK(socket >= 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const bool free = bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(socket);
    if (free) return port;
  }
  LOG(FATAL) << "no free port from 20000 to 32000";
  return 0;
}

}  // namespace

std::string Program(const std::string& name) { return std::string(CAPSTAN_BIN_DIR) + "/" + name; }

bool LongTests() { return std::getenv("CAPSTAN_LONG_TESTS") != nullptr; }

std::string DataFolder() {
  const char* const given = std::getenv("CAPSTAN_DATA_DIR");
  const std::string folder = given != nullptr ? given : std::string(CAPSTAN_SOURCE_DIR) + "/../shared/data";
  return std::filesystem::exists(folder + "/adult/adult.data.gz") ? folder : "";
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  CHECK(file.good()) << path;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string ShaOf(const nlohmann::json& result) {
  const bool has =
      result.is_object() && result.contains("model_sha256") && result["model_sha256"].is_string();
  return has ? result["model_sha256"].get<std::string>() : "none";
}

IntegrationTest::IntegrationTest() : folder_(FreshFolder()), processes_(folder_) {}

IntegrationTest::~IntegrationTest() {
  std::error_code ignored;  // a folder that stays behind is no failure of what was tested
  if (!HasFailure()) std::filesystem::remove_all(folder_, ignored);
}

void IntegrationTest::TearDown() {
  EXPECT_THAT(processes_.Leftovers(Seconds(15)), ::testing::IsEmpty());
  if (HasFailure()) fmt::print("the files of this test are in {}\n", folder_);
}

std::string IntegrationTest::WriteRows(const std::string& name, size_t rows, uint64_t seed) {
  std::string text = "label,size,age,colour,town\n";
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t base = Mix(seed) + 16 * row;
    const double size = 4 * Uniform(base) - 2, age = 80 * Uniform(base + 1);
    const auto colour = static_cast<int>(6 * Uniform(base + 2)),
               town = static_cast<int>(40 * Uniform(base + 3));
    const double logit = 1.3 * size + (age - 40) / 30 + 0.8 * (colour % 3 - 1) + 2 * Uniform(1000 + town) - 1;
    const bool label = Uniform(base + 4) < 1 / (1 + std::exp(-logit));
    text += fmt::format("{},{:.4f},{:.1f},c{},t{}\n", label ? 1 : 0, size, age, colour, town);
  }
  WriteText(Path(name), text);
  return Path(name);
}

std::string IntegrationTest::WriteSparseRows(const std::string& name, size_t rows) {
  std::string text;
  for (size_t row = 0; row < rows; ++row) text += fmt::format("{} 1:1 {}:1\n", row % 2, 2 + row % 7);
  WriteText(Path(name), text);
  return Path(name);
}

std::string IntegrationTest::WriteJob(const std::string& name, const std::string& train,
                                      const std::string& more) {
  WriteText(Path(name), fmt::format(R"(name: "small"
epochs: 2
data {{
  train: "{}"
  label {{ column: "label" }}
  feature {{ column: "size" }}
  feature {{ column: "age" }}
  feature {{ column: "colour" kind: CATEGORICAL }}
  feature {{ column: "town" kind: CATEGORICAL }}
}}
model {{ wide_deep {{ embedding_dim: 8 hidden: 16 hidden: 8 }} }}
optimizer {{ name: "adam" learning_rate: 0.003 }}
{}
)",
                                    train, more));
  return Path(name);
}

std::string IntegrationTest::WriteCensusJob(const std::string& name, const std::vector<std::string>& train,
                                            const std::string& more) {
  std::string files;
  for (const std::string& file : train) files += fmt::format("  train: \"{}\"\n", file);
  WriteText(Path(name),
            fmt::format("name: \"census\"\ndata {{\n  format: LIBSVM\n{}}}\nmodel {{ census {{}} }}\n{}\n",
                        files, more));
  return Path(name);
}

Finished IntegrationTest::Run(const std::string& program, const std::vector<std::string>& arguments,
                              Seconds limit) {
  const std::string name = fmt::format("run-{}", ++runs_);
  std::vector<std::string> argv = arguments;
  argv.insert(argv.begin(), program.find('/') == std::string::npos ? Program(program) : program);
  processes_.Start(name, argv);
  const std::optional<ProcessEnd> end = processes_.Wait(name, limit);
  Finished finished;
  finished.out = processes_.out(name);
  finished.err = processes_.err(name);
  if (!end.has_value()) {
    ADD_FAILURE() << program << " still runs after " << limit.count() << " s: " << finished.err;
    processes_.Signal(name, SIGKILL);
    return finished;
  }
  EXPECT_EQ(end->signal, 0) << finished.err;
  finished.code = end->code;
  return finished;
}

std::string IntegrationTest::NewOutput() { return Path(fmt::format("output-{}", ++outputs_)); }

nlohmann::json IntegrationTest::ResultOf(const std::string& output) const {
  nlohmann::json result = nlohmann::json::parse(ReadText(output + "/result.json"), nullptr, false);
  return result.is_object() ? result : nlohmann::json::object();
}

nlohmann::json IntegrationTest::Train(const std::string& job, const std::vector<std::string>& flags) {
  const std::string output = NewOutput();
  std::vector<std::string> arguments = {"train", job, "--output=" + output};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Finished run = Capstan(arguments);
  EXPECT_EQ(run.code, 0) << run.err;
  nlohmann::json result = ResultOf(output);
  EXPECT_EQ(result.value("status", ""), "done");
  result["output"] = output;
  return result;
}

void IntegrationTest::ExpectEnd(const std::string& process, int code, Seconds limit) {
  const std::optional<ProcessEnd> end = processes_.Wait(process, limit);
  ASSERT_TRUE(end.has_value()) << process << " still runs: " << processes_.err(process);
  EXPECT_EQ(end->signal, 0) << process << ": " << processes_.err(process);
  EXPECT_EQ(end->code, code) << process << ": " << processes_.err(process);
}

bool IntegrationTest::AwaitText(const std::string& path, const std::string& text, Seconds limit) {
  const bool found = Eventually(limit, [&] { return ReadText(path).find(text) != std::string::npos; });
  EXPECT_TRUE(found) << "no '" << text << "' in " << path << " within " << limit.count() << " s:\n"
                     << ReadText(path);
  return found;
}

HandCluster::HandCluster(ProcessGroup& processes, const std::string& prefix, std::string job,
                         std::string output, uint32_t servers, uint32_t workers)
    : processes_(processes),
      prefix_(prefix),
      job_(std::move(job)),
      output_(std::move(output)),
      servers_(servers),
      workers_(workers),
      port_(FreePort()) {}

void HandCluster::StartScheduler(const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {Program("capstan-scheduler"),
                                   "--job=" + job_,
                                   "--bind=" + address(),
                                   "--output=" + output_,
                                   fmt::format("--servers={}", servers_),
                                   fmt::format("--workers={}", workers_)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  processes_.Start(scheduler(), argv);
}

void HandCluster::StartServer(uint32_t number, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {Program("capstan-ps"), "--scheduler=" + address(),
                                   "--name=" + server(number)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  processes_.Start(server(number), argv);
}

void HandCluster::StartWorker(uint32_t number, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {Program("capstan-worker"), "--scheduler=" + address(),
                                   "--name=" + worker(number)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  processes_.Start(worker(number), argv);
}

void HandCluster::StartAll(const std::vector<std::string>& scheduler_flags) {
  StartScheduler(scheduler_flags);
  for (uint32_t i = 0; i < servers_; ++i) StartServer(i);
  for (uint32_t i = 0; i < workers_; ++i) StartWorker(i);
}

std::vector<std::string> HandCluster::nodes() const {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < servers_; ++i) names.push_back(server(i));
  for (uint32_t i = 0; i < workers_; ++i) names.push_back(worker(i));
  return names;
}

}  // namespace capstan::testing
